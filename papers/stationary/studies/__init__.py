"""Studies beyond the paper's tables and figures, one page each."""
