"""Studies of papers: what each runs, what was printed, what was measured. Outside the wheel."""
