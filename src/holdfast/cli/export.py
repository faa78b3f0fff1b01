"""``holdfast export``: a model as one file for other runtimes."""

from pathlib import Path

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json


def export(
    model: Path = typer.Argument(..., metavar="MODEL", help="A model folder, such as models/1 or RUN/models/03."),
    onnx: Path | None = typer.Option(None, "--onnx", help="Write an ONNX file."),
    torch_export: Path | None = typer.Option(None, "--torch-export", help="Write a torch.export program (.pt2)."),
    backbone: str | None = typer.Option(
        None, "--backbone", help="Own code the model was built by, package.module:function, which you trust."
    ),
    json: bool = JSON_OPTION,
) -> None:
    """Write a model as ONNX or as a torch.export program.

    The file takes pixels 0 to 255 of the model's size (or vectors) and gives unit features, the same as encode does to
    1e-4; its metadata holds the preprocessing, the projection's shape and the versions.

    Example: holdfast export models/2 --onnx model.onnx
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.train.encoders import Encoder, build_backbone
    from holdfast.train.encoders.encoder import read_model_files
    from holdfast.train.encoders.export import export_onnx, export_torch

    if onnx is None and torch_export is None:
        raise HoldfastError("export: name what to write: --onnx FILE, --torch-export FILE or both")
    description, _ = read_model_files(model)
    network = None
    if backbone is not None:
        named = description["backbone"] or {}
        if named.get("name") != backbone:
            raise HoldfastError(f"{model}: was built by {named.get('name')}, not by {backbone}; leave out --backbone")
        network = build_backbone(backbone, **named.get("options", {}))
    encoder = Encoder.from_pretrained(model, backbone=network)
    about = {"model": model.name, "weights_sha256": description["weights_sha256"]}
    written = {}
    for name, path, write in (("onnx", onnx, export_onnx), ("torch_export", torch_export, export_torch)):
        if path is not None:
            write(encoder, path, about=about)
            written[name] = {"file": str(path), "bytes": path.stat().st_size}
    if json:
        print_json(written)
        return
    for entry in written.values():
        typer.echo(f"{entry['file']}: {entry['bytes']:,} bytes, features of size {encoder.embedding_dim}")
