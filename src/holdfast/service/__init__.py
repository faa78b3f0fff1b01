"""The gallery over HTTP: search, add, delete, versions; one process, started by ``holdfast serve``.

Needs ``pip install '.[serve]'``; nothing here is imported before a server or its control is asked for.
"""
