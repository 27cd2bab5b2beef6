"""CUDA C++ to machine code (cubin) with NVRTC, NVIDIA's run-time compiler.  Needs no GPU.

NVRTC comes with ``cuda-bindings``, the lower half of ``cuda-core``, and the headers of half
precision (``cuda_fp16.h``) with the toolkit's wheels or a CUDA installation.  Compiling takes about
a tenth of a second; a finished cubin is kept on disk under a hash of text, options and version.

Loading and launching is `autokernel.backends.cuda`'s business.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel.backends import toolcache
from autokernel.backends.cuda_header import AUTOKERNEL_CUDA_HEADER
from autokernel.backends.diagnostics import compile_error
from autokernel.errors import BackendUnavailable, CompileError

__all__ = ["Cubin", "compile_cubin", "include_dirs", "supported_archs", "version"]

_HEADER_NAME = "autokernel.h"
_INSTALL = "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc"
_INSTALL_HEADERS = "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"


@dataclasses.dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture.

    Attributes:
        code: The ELF image that the driver loads.
        lowered: The mangled name of each kernel, by the name expression that was asked for.
    """

    code: bytes
    lowered: Mapping[str, str]


def compile_cubin(source: str, names: Sequence[str], arch: str, options: Sequence[str] = ()) -> Cubin:
    """Compile a CUDA C++ text for one architecture.

    Args:
        source: The text.  `AUTOKERNEL_CUDA_HEADER` is included before it.
        names: The kernels wanted, as C++ name expressions such as ``rms_norm<float>``.
        arch: ``sm_80``, ``sm_90a`` and so on.
        options: Further options of NVRTC, such as ``-DBLOCK_SIZE=256``.

    Raises:
        CompileError: The text does not compile, or has no such kernel; with line numbers of the text.
        BackendUnavailable: NVRTC or its headers are missing, or NVRTC is too old for ``arch``.
    """
    directories = include_dirs()
    key = toolcache.digest((AUTOKERNEL_CUDA_HEADER, source, *names, arch, *options, *version(), *directories))
    target = toolcache.cache_dir() / f"cuda-{key}.cubin"
    kept = _read(target)
    if kept is not None:
        return kept
    _check_arch(arch)
    includes = [f"--include-path={directory}" for directory in directories]
    standard = [f"--gpu-architecture={arch}", "--std=c++17", f"--pre-include={_HEADER_NAME}", *includes]
    cubin = _run(source, names, [*standard, *options])
    _write(target, cubin)
    return cubin


def version() -> tuple[int, int]:
    """Return NVRTC's version, such as ``(13, 0)``.

    Raises:
        BackendUnavailable: NVRTC is missing.
    """
    return _nvrtc()[1]


@functools.lru_cache(maxsize=1)
def supported_archs() -> tuple[int, ...]:
    """Return the compute capabilities that NVRTC compiles for, as 80, 90, 100."""
    result = _nvrtc()[0].nvrtcGetSupportedArchs()
    return tuple(result[1])


@functools.lru_cache(maxsize=1)
def include_dirs() -> tuple[str, ...]:
    """Return the folders of ``cuda_fp16.h`` and of what it includes.

    The wheels beside this Python come first, then the CUDA installation that ``CUDA_HOME`` or
    ``CUDA_PATH`` names, then ``/usr/local/cuda``.

    Raises:
        BackendUnavailable: The headers are in none of them.
    """
    major = version()[0]
    roots = []
    for entry in dict.fromkeys(path for path in sys.path if path):
        nvidia = Path(entry) / "nvidia"
        roots += [nvidia / f"cu{major}" / "include", nvidia / "cuda_runtime" / "include"]
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots += [Path(home) / "include" for home in homes if home]
    base = next((root for root in roots if (root / "cuda_fp16.h").is_file()), None)
    if base is None:
        raise BackendUnavailable(
            f"cuda_fp16.h was not found, so CUDA kernels cannot be compiled; {_INSTALL_HEADERS}, or set CUDA_HOME"
        )
    beside = [base / "cccl", base.parent.parent / "cuda_cccl" / "include"]
    others = [root for root in roots if root != base] + [root / "cccl" for root in roots]
    target = next((root for root in (base, *beside, *others) if (root / "nv" / "target").is_file()), None)
    if target is None:
        raise BackendUnavailable(
            f"{base} has cuda_fp16.h, but nv/target, which it includes, was not found; pip install nvidia-cuda-cccl"
        )
    wanted = [base, target, *(folder for folder in beside if folder.is_dir())]
    return tuple(dict.fromkeys(str(folder) for folder in wanted))


@functools.lru_cache(maxsize=1)
def _nvrtc() -> tuple[Any, tuple[int, int]]:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise BackendUnavailable(f"CUDA kernels need cuda-core and cuda-bindings ({error}); {_INSTALL}") from error
    try:
        result = nvrtc.nvrtcVersion()
    except Exception as error:  # whatever the loader says about a missing library
        raise BackendUnavailable(f"NVRTC could not be loaded ({error}); {_INSTALL}") from error
    return nvrtc, (int(result[1]), int(result[2]))


def _check_arch(arch: str) -> None:
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise CompileError(f"architecture {arch!r} is none; write it as sm_80 or sm_90a")
    known = supported_archs()
    if int(digits) not in known:
        major, minor = version()
        raise BackendUnavailable(
            f"NVRTC {major}.{minor} does not compile for {arch}; it knows "
            f"{', '.join(f'sm_{number}' for number in known)}; install a matching nvidia-cuda-nvrtc"
        )


def _run(source: str, names: Sequence[str], options: Sequence[str]) -> Cubin:
    nvrtc = _nvrtc()[0]
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    headers, header_names = [AUTOKERNEL_CUDA_HEADER.encode()], [_HEADER_NAME.encode()]
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"CUDA_SRC", 1, headers, header_names)
    if status != success:
        raise CompileError(f"NVRTC could not take the text: {status.name}")
    try:
        for name in names:
            (status,) = nvrtc.nvrtcAddNameExpression(program, name.encode())
            if status != success:
                raise CompileError(f"NVRTC could not take the kernel name {name!r}: {status.name}")
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != success:
            raise compile_error("CUDA_SRC", source, _log(nvrtc, program) or status.name)
        lowered = {}
        for name in names:
            status, mangled = nvrtc.nvrtcGetLoweredName(program, name.encode())
            if status != success:
                raise CompileError(f"CUDA_SRC has no kernel {name!r}: {status.name}")
            lowered[name] = mangled.decode()
        status, size = nvrtc.nvrtcGetCUBINSize(program)
        code = bytearray(size)
        (status,) = nvrtc.nvrtcGetCUBIN(program, code)
        if status != success or size == 0:
            raise CompileError(f"NVRTC gave no machine code: {status.name}; is the architecture a real one (sm_...)?")
        return Cubin(bytes(code), lowered)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0").decode(errors="replace")


def _read(target: Path) -> Cubin | None:
    try:
        head, _, code = target.read_bytes().partition(b"\n")
        return Cubin(code, json.loads(head))
    except (OSError, ValueError):
        return None


def _write(target: Path, cubin: Cubin) -> None:
    work = toolcache.scratch(target.parent)
    try:
        file = work / "kernel.cubin"
        file.write_bytes(json.dumps(dict(cubin.lowered)).encode() + b"\n" + cubin.code)
        toolcache.publish(file, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
