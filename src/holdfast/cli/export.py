"""``holdfast export``: a model as one file for other runtimes."""

from pathlib import Path

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json


def export(
    model: Path = typer.Argument(..., metavar="MODEL", help="A model folder, such as models/1 or RUN/models/03."),
    file: Path = typer.Argument(..., metavar="FILE", help="What to write: FILE.onnx, or FILE.pt2 for torch.export."),
    json: bool = JSON_OPTION,
) -> None:
    """Write a model as ONNX or as a torch.export program.

    The file takes pixels 0 to 255 of the model's size (or vectors) and gives unit features, the same as encode does to
    1e-4; its metadata holds the preprocessing, the projection's shape and the versions.

    Example: holdfast export models/2 model.onnx
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.train.encoders import Encoder
    from holdfast.train.encoders.encoder import read_model_files
    from holdfast.train.encoders.encoder_export import export_onnx, export_torch

    writers = {".onnx": export_onnx, ".pt2": export_torch}
    if file.suffix not in writers:
        raise HoldfastError(f"{file}: name a file that ends in .onnx, or in .pt2 for a torch.export program")
    description, _ = read_model_files(model)
    encoder = Encoder.from_pretrained(model)
    about = {"model": model.name, "weights_sha256": description["weights_sha256"]}
    writers[file.suffix](encoder, file, about=about)
    if json:
        print_json({"file": str(file), "bytes": file.stat().st_size})
        return
    typer.echo(f"{file}: {file.stat().st_size:,} bytes, features of size {encoder.embedding_dim}")
