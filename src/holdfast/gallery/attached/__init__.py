"""A gallery over a vector store that somebody else fills. Read-only."""
