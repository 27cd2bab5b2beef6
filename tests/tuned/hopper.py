"""Compile the Triton launches of a kernel file for a Hopper GPU, without one.

A stand-in for the driver says that the device is of compute capability 9.0; a launch then compiles,
is recorded, and runs nothing.  `ptxas`, which comes with triton, says what registers it takes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Launch", "launches", "load"]


@dataclasses.dataclass(frozen=True)
class Launch:
    """One launch: the kernel's name, its PTX, and what ptxas says of it.

    Attributes:
        name: The kernel's name.
        grid: The number of programs in each direction.
        ptx: The whole text.
        registers: Registers of each thread.
        spilled_bytes: Bytes that each thread stores to local memory for want of registers.
        shared_bytes: Shared memory of a program.
    """

    name: str
    grid: tuple[int, ...]
    ptx: str
    registers: int
    spilled_bytes: int
    shared_bytes: int

    def has(self, pattern: str) -> bool:
        """Whether an instruction matches, such as ``ld\\.global.*v4\\.b32``."""
        return re.search(pattern, self.ptx) is not None


class _NoDevice:
    """What `triton.runtime.driver` needs to know of a device in order to compile for it."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def load(file: Path) -> ModuleType:
    """Import a kernel file under a name of its own."""
    description = importlib.util.spec_from_file_location(f"tuned_{file.parent.name}_{file.stem}", file)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


@contextmanager
def _recording(found: list[tuple[str, tuple[int, ...], Any]]) -> Iterator[None]:
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = run(self, *args, grid=grid, warmup=True, **kwargs)
        found.append((self.fn.__name__, tuple(grid), compiled))
        return compiled

    run, before = JITFunction.run, driver._active
    driver.set_active(_NoDevice())
    JITFunction.run = compile_only
    try:
        yield
    finally:
        JITFunction.run = run
        driver._active = before


def launches(call: Callable[[], Any]) -> list[Launch]:
    """Compile for sm_90a what ``call`` launches; it gets tensors of the CPU, which nothing reads."""
    found: list[tuple[str, tuple[int, ...], Any]] = []
    with _recording(found):
        call()
    return [_launch(name, grid, compiled) for name, grid, compiled in found]


def _launch(name: str, grid: tuple[int, ...], compiled: Any) -> Launch:
    import triton

    ptx = compiled.asm["ptx"]
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        said = subprocess.run(
            [ptxas, "-v", "--gpu-name=sm_90a", file, "-o", file.with_suffix(".cubin")],
            capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
    registers = int((re.search(r"Used (\d+) registers", said) or ["", "0"])[1])
    spilled = int((re.search(r"(\d+) bytes spill stores", said) or ["", "0"])[1])
    return Launch(name, grid, ptx, registers, spilled, int(compiled.metadata.shared))
