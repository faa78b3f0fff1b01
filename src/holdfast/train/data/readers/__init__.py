"""Readers of datasets; each returns an ``ImageSet``."""
