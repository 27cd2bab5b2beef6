"""The few calls of NVIDIA's driver that loading and launching a kernel takes, through ctypes.

The driver is opened at the first call, so that importing this needs no GPU.  Kernels are loaded
into the device's primary context, the one that torch uses.  A launch through ctypes with its
arguments already packed takes a microsecond or two, less than through a general wrapper.

Source: CUDA Driver API reference, sections Module Management and Execution Control.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from autokernel.errors import DeviceUnavailable

__all__ = ["CudaError", "ensure_context", "function", "launch", "load_module", "max_shared_bytes", "set_shared_bytes"]

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_...
_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_...
_INVALID_CONTEXT = 201
_OUT_OF_RESOURCES = 701


class CudaError(RuntimeError):
    """The driver refused a call."""


@functools.lru_cache(maxsize=1)
def _driver() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceUnavailable(
            f"CUDA kernels run on an NVIDIA GPU only, and its driver is not here ({error}); they compile here, though"
        ) from error
    library.cuLaunchKernel.argtypes = [
        ctypes.c_void_p,
        *[ctypes.c_uint] * 7,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    _check(library, library.cuInit(0), "starting the driver")
    return library


def ensure_context(device: int) -> None:
    """Make the primary context of ``device`` the calling thread's, if it has none."""
    library = _driver()
    current = ctypes.c_void_p()
    _check(library, library.cuCtxGetCurrent(ctypes.byref(current)), "asking for the context")
    if current.value is None:
        _use_primary_context(library, device)


def load_module(device: int, code: bytes) -> int:
    """Load a cubin into the current context and return its handle; it stays loaded until the process ends."""
    library = _driver()
    ensure_context(device)
    module = ctypes.c_void_p()
    _check(library, library.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(code)), "loading the cubin")
    assert module.value is not None
    return module.value


def function(module: int, name: str) -> int:
    """Return the handle of the kernel of the (mangled) ``name`` in a loaded module."""
    library = _driver()
    found = ctypes.c_void_p()
    status = library.cuModuleGetFunction(ctypes.byref(found), ctypes.c_void_p(module), ctypes.c_char_p(name.encode()))
    _check(library, status, f"finding the kernel {name}")
    assert found.value is not None
    return found.value


def max_shared_bytes(device: int) -> int:
    """Return the most shared memory that one block of a kernel on ``device`` can opt in to, in bytes."""
    library = _driver()
    handle, value = ctypes.c_int(), ctypes.c_int()
    _check(library, library.cuDeviceGet(ctypes.byref(handle), device), f"finding device {device}")
    status = library.cuDeviceGetAttribute(ctypes.byref(value), _MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, handle)
    _check(library, status, "asking for the shared memory per block")
    return value.value


def set_shared_bytes(function: int, shared_bytes: int) -> None:
    """Let ``function`` be launched with up to ``shared_bytes`` of dynamic shared memory."""
    library = _driver()
    status = library.cuFuncSetAttribute(ctypes.c_void_p(function), _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
    _check(library, status, f"opting in to {shared_bytes} bytes of dynamic shared memory")


def launch(
    device: int,
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    stream: int,
    parameters: Any,
) -> None:
    """Launch ``function`` on ``stream``; ``parameters`` is an array of pointers to the arguments.

    Raises:
        CudaError: The driver refused the launch.
    """
    library = _driver()
    status = library.cuLaunchKernel(function, *grid, *block, shared_bytes, stream, parameters, None)
    if status == 0:
        return
    if status == _INVALID_CONTEXT:  # a thread in which torch has not worked yet
        _use_primary_context(library, device)
        status = library.cuLaunchKernel(function, *grid, *block, shared_bytes, stream, parameters, None)
    what = f"launching with grid {grid}, block {block} and {shared_bytes} bytes of dynamic shared memory"
    if status == _OUT_OF_RESOURCES:
        what += " (a block of that size needs more registers than there are; use __launch_bounds__ or a smaller block)"
    _check(library, status, what)


def _use_primary_context(library: Any, device: int) -> None:
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    _check(library, library.cuDeviceGet(ctypes.byref(handle), device), f"finding device {device}")
    retained = library.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle)
    _check(library, retained, "entering the device's primary context")
    _check(library, library.cuCtxSetCurrent(context), "entering the device's primary context")


def _check(library: Any, status: int, what: str) -> None:
    if status == 0:
        return
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(status, ctypes.byref(name))
    library.cuGetErrorString(status, ctypes.byref(text))
    spoken = (text.value or b"unknown error").decode()
    raise CudaError(f"{what} failed: {spoken} ({(name.value or b'?').decode()}, {status})")
