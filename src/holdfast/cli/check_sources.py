"""What ``holdfast check`` takes for a gallery: a file, or the address of a store that is sampled in place."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from holdfast.checking import FeatureSet

TABLE_OPTION = typer.Option(None, "--table", help="Where --gallery is a URL: the table or collection.")
ID_OPTION = typer.Option("id", "--id", help="Likewise: the column of ids.")
VECTOR_OPTION = typer.Option("", "--vector", help="Likewise: the column of vectors.")
LABEL_OPTION = typer.Option(None, "--label", help="Likewise: the column of classes.")
SAMPLE_OPTION = typer.Option(None, "--sample", help="Likewise: how many stored vectors to take, at random by --seed.")
THROUGH_OPTION = typer.Option(
    None, "--through", help="An adopted model: its projection carries gallery and old queries first."
)


def gallery_source(
    gallery: str | None,
    table: str | None,
    id: str,
    vector: str,
    label: str | None,
    sample: int | None,
    seed: int,
) -> "Path | FeatureSet | None":
    """The gallery as ``check`` takes it; options of a store beside a file are refused."""
    from holdfast.errors import HoldfastError
    from holdfast.gallery.attached_source import Address, is_url
    from holdfast.gallery.stored_sample import stored_sample

    if gallery is None or not is_url(gallery):
        for name, given in (("--table", table), ("--label", label), ("--sample", sample)):
            if given is not None:
                raise HoldfastError(f"{name} goes with a --gallery that is a URL of a store")
        return None if gallery is None else Path(gallery)
    if table is None:
        raise HoldfastError(f"--gallery {gallery.partition(':')[0]}:...: --table must say which table or collection")
    return stored_sample(Address(gallery, table, id, vector, label), sample, seed)


def carried_through(
    adopted: Path | None, gallery: "Path | FeatureSet", queries_old: "Path | FeatureSet"
) -> "tuple[Path | FeatureSet, Path | FeatureSet]":
    """Gallery and old queries in the space that an adopted model compares in."""
    if adopted is None:
        return gallery, queries_old
    import torch

    from holdfast.adoption import read_adopted
    from holdfast.checking import feature_set
    from holdfast.checking.inputs import opened
    from holdfast.checking.search import float32
    from holdfast.errors import HoldfastError

    model = read_adopted(adopted)

    def through(source: "Path | FeatureSet", role: str) -> "FeatureSet":
        found = opened(source, role, role)
        if found.dim != model.encoder.feature_dim:
            raise HoldfastError(
                f"{found.name}: vectors of {found.dim} numbers, {adopted} was adopted from {model.encoder.feature_dim}"
            )
        rows = float32(found.rows.block(0, len(found)), "cpu")
        bad = ~rows.isfinite().all(1)
        carried = model.carried(torch.where(bad[:, None], 0.0, rows))
        carried[bad] = torch.nan
        return feature_set(found.name, carried.numpy(), found.labels, found.ids)

    return through(gallery, "gallery"), through(queries_old, "query")
