"""The answers to a search, as a list that shows itself in a notebook."""

import html
from collections.abc import Mapping

from holdfast.gallery.filters import Value
from holdfast.gallery.items import Hit


class Hits(list[Hit]):
    """Best first. In a notebook a table of what there is; paths stay out of it, for notebooks are passed on."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no hits</p>"
        columns = {
            "": [str(place) for place in range(1, len(self) + 1)],
            "id": [hit.id for hit in self],
            "label": [hit.label or "" for hit in self],
            "score": [f"{hit.score:.4f}" for hit in self],
            "version": [str(hit.version) for hit in self],
            "metadata": [_words(hit.metadata) for hit in self],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        head, rows = "".join(f"<th>{name}</th>" for name in columns), zip(*columns.values(), strict=True)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"


def _words(metadata: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in metadata.items())
