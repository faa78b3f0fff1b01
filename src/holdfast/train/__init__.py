"""Everything that needs torch: training models that stay compatible, and judging the models of a run."""
