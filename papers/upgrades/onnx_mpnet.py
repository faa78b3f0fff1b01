"""MPNet from a sentence-transformers folder as an ONNX network with int8 weights, for ``embed.py``.

    python papers/upgrades/onnx_mpnet.py all-mpnet-base-v2 mpnet-int8.onnx

Weights have a scale per output channel. The second layer of each feed-forward block stays float32: a few of its
inputs are far larger than the rest, and with one scale for all of them the text's vector has a cosine of 0.85 to the
float32 model's; without it 0.99. Needs torch, transformers, onnx and onnxruntime, in an environment of its own;
nothing else of this study does.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path


def main() -> None:
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    model = AutoModel.from_pretrained(options.folder, attn_implementation="eager").eval()

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.tensor([[0, 2023, 2003, 1037, 3231, 2], [0, 2178, 3231, 2, 1, 1]])
    mask = (ids != 1).long()
    axes = {0: "batch", 1: "sequence"}
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "mpnet.onnx"
        torch.onnx.export(
            Tokens(),
            (ids, mask),
            str(whole),
            input_names=["input_ids", "attention_mask"],
            output_names=["tokens"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "tokens": axes},
            opset_version=17,
            dynamo=False,
        )
        exact = [
            node.name
            for node in onnx.load(whole).graph.node
            if node.op_type == "MatMul" and node.name.endswith("/output/dense/MatMul")
        ]
        quantize_dynamic(whole, options.out, weight_type=QuantType.QInt8, per_channel=True, nodes_to_exclude=exact)


if __name__ == "__main__":
    main()
