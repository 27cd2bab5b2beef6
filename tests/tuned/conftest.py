"""What the tests of the tuned kernels share: Triton's interpreter in a process of its own."""

from __future__ import annotations

from tests.ops.conftest import interpret

__all__ = ["interpret"]
