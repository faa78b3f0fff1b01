"""Errors, atomic files, bounds for untrusted files, locks, wording. Imports nothing else of Holdfast."""
