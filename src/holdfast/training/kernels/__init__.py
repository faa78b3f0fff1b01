"""Triton kernels that train some networks with fewer passes over memory; the executor "fused" uses them.

Triton comes with torch's CUDA builds. Modules that hold kernels are imported only when the executor is used.
"""

from holdfast.training.kernels.fused import fused_network, why_no_kernels

__all__ = ["fused_network", "why_no_kernels"]
