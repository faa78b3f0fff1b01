"""Limits of an item's texts and numbers. The gallery refuses more, and the service describes them to its clients."""

LONGEST_ID = 512
"""Characters of an id."""
LONGEST_TEXT = 8192
"""Characters of a label or of a text in the metadata."""
MOST_FIELDS = 64
"""Metadata fields of an item, and new ones in one request of the service."""
MOST_FIELDS_IN_ALL = 128
"""Fields of all items of a gallery, ``label`` included: each has an index, which is built again with the vectors'."""
LARGEST_WHOLE = 2**53
"""Stores compare numbers as doubles, which cannot tell larger whole numbers apart."""
