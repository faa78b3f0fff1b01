"""The answers to a search, as a list that shows itself in a notebook."""

import html
from collections.abc import Mapping

from holdfast.gallery.filters import Value
from holdfast.gallery.items import Hit


class Hits(list[Hit]):
    """Best first. In a notebook a table; paths stay out of it, for notebooks are passed on."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no hits</p>"
        heads = ("", "id", "label", "score", "version", "metadata")
        rows = (
            (str(place), hit.id, hit.label or "", f"{hit.score:.4f}", str(hit.version), _words(hit.metadata))
            for place, hit in enumerate(self, 1)
        )
        head = "".join(f"<th>{name}</th>" for name in heads)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"


def _words(metadata: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in metadata.items())
