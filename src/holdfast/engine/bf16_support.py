"""Whether a device computes in bf16 itself, or imitates it."""

import torch


def imitates_bf16(device: torch.device) -> bool:
    """A CPU without bf16 instructions, on which torch computes bf16 with loops of its own, slower by orders.

    One without oneDNN, or with another torch, is not judged.
    """
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return device.type == "cpu" and supported is not None and not supported()
