"""Triton kernels for the networks that many small runs train: fewer passes over memory, the same results.

Triton comes with torch's CUDA builds. Nothing here is imported before a GPU run asks for it.
"""

from holdfast.training.kernels.fused import fused_network, why_no_kernels

__all__ = ["fused_network", "why_no_kernels"]
