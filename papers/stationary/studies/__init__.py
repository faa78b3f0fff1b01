"""Studies beyond the paper: what was changed, what was measured."""
