"""Readers of data sets: each lists, decodes and returns an ``ImageSet``."""
