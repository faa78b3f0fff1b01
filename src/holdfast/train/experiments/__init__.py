"""Experiments: recipes (TOML files, checked strictly), runs, sweeps, pre-training and logging."""
