"""A kept kernel on its own: a Python package, or a project of Hugging Face's `kernels`, without AutoKernel.

What is written holds the kernel, the guard that lets it run where it was verified, PyTorch for everything
else, and the evidence.  Nothing is published.
"""

from __future__ import annotations

from autokernel.export.hub import export_hf
from autokernel.export.package import export_package

__all__ = ["export_hf", "export_package"]
