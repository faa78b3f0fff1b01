"""One TOML per experiment, checked strictly, turned into calls of the library."""
