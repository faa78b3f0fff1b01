"""Write a network as one ONNX file, with its metadata."""

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError, first_line, how_to_install
from holdfast.core.storage import replacing

OPSET = 18

MAX_BYTES = 2**31 - 2**20
"""Largest weights in an ONNX file: a protobuf message holds 2 GiB, and the graph needs little of it."""


def write_onnx(
    network: nn.Module, example: Tensor, path: str | Path, *, names: tuple[str, str], metadata: Mapping[str, Any]
) -> None:
    """Write ``network`` to an ONNX file that takes any batch size.

    network: in eval mode on the CPU; one tensor in, one tensor out.
    example: a batch of two inputs, to trace the network (a batch of one would become a constant).
    names: of the input and of the output.
    metadata: each entry becomes a property ``holdfast.NAME`` of the file; values that are not text as JSON.
    Needs onnx and onnxscript.
    """
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    if size > MAX_BYTES:
        raise HoldfastError(f"the weights take {size / 2**30:.1f} GiB and one ONNX file holds 2; export it for torch")
    try:
        with quiet_exporters():
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[names[0]],
                output_names=[names[1]],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
        assert program is not None
        model = program.model_proto
    except ImportError as error:
        raise HoldfastError(f"ONNX needs onnx and onnxscript ({error}); {how_to_install('onnx')}") from error
    except HoldfastError:
        raise
    except Exception as error:  # the exporter's errors have no common type
        raise HoldfastError(f"this network cannot be written as ONNX: {first_line(error)}") from error
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = f"holdfast.{key}", value if isinstance(value, str) else json.dumps(value)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """Silence the logs and warnings of torch's exporters. The tests check that the results agree."""
    before = logging.root.manager.disable  # the caller may have disabled more
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
