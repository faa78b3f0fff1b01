"""The gallery over HTTP: search, add, delete, versions, and a web page. ``holdfast serve`` starts it.

Needs ``pip install '.[serve]'``. The command line imports these modules only when it uses them.
"""
