"""CUDA C++ kernels: compiled by NVRTC at the first launch, launched on torch's current stream.

    MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE})
    scale = MODULE.kernel("scale<T>", "T*", "T*", "int64")
    scale[n_blocks, BLOCK_SIZE](x, y, x.numel())

``T`` in a kernel's name stands for the type of its ``T*`` tensors (``float``, ``__half`` or
``__nv_bfloat16``); each is compiled when it is first met.  Nothing is loaded before the first
launch, so a kernel file can be imported, and compiled with `compile_only`, without a GPU.
Launches can be captured in a CUDA graph once the kernel has been launched before.
"""

from __future__ import annotations

import builtins
import ctypes
import dataclasses
import functools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autokernel.backends import cuda_driver, nvrtc
from autokernel.backends.arguments import KINDS, POINTER_DTYPES, check_kinds, explain_tensor
from autokernel.backends.cuda_header import CUDA_TYPES
from autokernel.errors import DeviceUnavailable, UsageError

__all__ = ["CudaKernel", "CudaModule", "compile", "compile_only", "describe"]

_KINDS = tuple(kind for kind in KINDS if kind != "dtype")
_TYPES = {getattr(torch, name): text for name, text in CUDA_TYPES.items()}
_SCALARS: dict[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
_Triple = tuple[int, int, int]


def compile(
    source: str,
    *,
    defines: Mapping[str, int | float | bool | str] | None = None,
    flags: Sequence[str] = (),
    arch: str | None = None,
) -> CudaModule:
    """Return the module of a CUDA C++17 text; the compiler runs at the first launch.

    Args:
        source: The text.  `AUTOKERNEL_CUDA_HEADER` is included before it: fixed-size integers,
            ``__half`` and ``__nv_bfloat16``, ``to_float`` and ``from_float<T>``.
        defines: Macros, such as the module's tunable constants; True and False become 1 and 0.
        flags: Further options of NVRTC, such as ``--use_fast_math`` or ``--maxrregcount=64``.
        arch: The architecture, such as ``sm_90a``; that of the device when None.

    Raises:
        BackendUnavailable: NVRTC is missing; the message says what to install.
    """
    nvrtc.version()
    macros = [f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in (defines or {}).items()]
    return CudaModule(source, (*flags, *macros), arch)


class CudaModule:
    """A CUDA C++ text with its options; made by `compile`."""

    def __init__(self, source: str, options: Sequence[str], arch: str | None) -> None:
        self.source = source
        self.options = tuple(options)
        self.arch = arch
        self.kernels: list[CudaKernel] = []
        self.recent_dtype = torch.float32  # for kernels without T, so that they need no build of their own
        self._cubins: dict[tuple[str, str, int], nvrtc.Cubin] = {}
        self._loaded: dict[tuple[str, torch.dtype, int, int], int] = {}

    def kernel(self, name: str, *kinds: str) -> CudaKernel:
        """Return the ``__global__`` function ``name``.

        Args:
            name: A C++ name expression, such as ``mean_loss`` or ``rms_norm<T>``; see the module.
            kinds: The kind of each parameter; see `autokernel.backends.arguments`.

        Raises:
            UsageError: An unknown kind, or ``<T>`` without a ``T*`` to take it from.
        """
        check_kinds(name, kinds, _KINDS)
        if "T" in _words(name) and "T*" not in kinds:
            raise UsageError(f"{name}: T stands for the type of the T* arguments, but there is none")
        kernel = CudaKernel(self, name, kinds)
        self.kernels.append(kernel)
        return kernel

    def cubin(self, arch: str, dtype: torch.dtype) -> nvrtc.Cubin:
        """Compile all kernels of the module for one architecture and one dtype of ``T``.

        Raises:
            CompileError: The text does not compile; the message gives the lines of ``CUDA_SRC``.
            BackendUnavailable: NVRTC or its headers are missing or too old.
        """
        key = (arch, _TYPES[dtype], len(self.kernels))
        if key not in self._cubins:
            names = [kernel.instance_name(dtype) for kernel in self.kernels]
            self._cubins[key] = nvrtc.compile_cubin(self.source, list(dict.fromkeys(names)), arch, self.options)
        return self._cubins[key]

    def function(self, name: str, dtype: torch.dtype, device: int) -> int:
        """Return the driver's handle of the kernel whose name expression is ``name``, loaded on ``device``."""
        key = (self.arch or _arch(device), dtype, device, len(self.kernels))
        cubin = self.cubin(key[0], dtype)
        if key not in self._loaded:
            self._loaded[key] = cuda_driver.load_module(device, cubin.code)
        return cuda_driver.function(self._loaded[key], cubin.lowered[name])


@dataclasses.dataclass(frozen=True)
class _Instance:
    # One kernel for one dtype on one device, with room for its packed arguments.
    device: int
    function: int
    slots: tuple[Any, ...]
    parameters: Any
    lock: threading.Lock


class CudaKernel:
    """One kernel, launched as ``kernel[grid, block](...)`` or ``kernel[grid, block, shared_bytes](...)``.

    ``grid`` and ``block`` are integers or tuples of one to three.  Tensors must lie on one CUDA
    device, be contiguous and have the declared dtype.
    """

    def __init__(self, module: CudaModule, name: str, kinds: Sequence[str]) -> None:
        self.module = module
        self.name = name
        self.kinds = tuple(kinds)
        self._plan = tuple((kind.endswith("*"), POINTER_DTYPES.get(kind), kind == "int32") for kind in kinds)
        self._instances: dict[tuple[torch.dtype, int], _Instance] = {}
        self._shared_bytes: dict[int, int] = {}

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        """Return the launch with a grid, a block and, if given, bytes of dynamic shared memory."""
        if not isinstance(configuration, tuple) or len(configuration) not in (2, 3):
            raise UsageError(f"{self.name}: write {self.name}[grid, block] or {self.name}[grid, block, shared_bytes]")
        grid, block = _triple(configuration[0]), _triple(configuration[1])
        shared_bytes = configuration[2] if len(configuration) == 3 else 0
        return functools.partial(self._launch, grid, block, shared_bytes)

    def launch(self, grid: Any, block: Any, *arguments: Any, shared_bytes: int = 0) -> None:
        """Launch on torch's current stream; does not wait for the kernel.

        Raises:
            TypeError: An argument's type or dtype, or the number of arguments, is not the declared one.
            ValueError: A tensor is not contiguous or not on the GPU.
            CompileError: The text does not compile (first launch only).
            CudaError: The driver refused the launch.
        """
        self._launch(_triple(grid), _triple(block), shared_bytes, *arguments)

    def instance_name(self, dtype: torch.dtype) -> str:
        """Return the name expression with the C++ type of ``dtype`` in place of ``T``."""
        return "".join(_TYPES[dtype] if word == "T" else word for word in _words(self.name))

    def _launch(self, grid: _Triple, block: _Triple, shared_bytes: int, *arguments: Any) -> None:
        values, dtype, device = self._checked(arguments)
        if device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._enqueue(grid, block, shared_bytes, values, dtype, device)
        else:
            self._enqueue(grid, block, shared_bytes, values, dtype, device)

    def _enqueue(
        self, grid: _Triple, block: _Triple, shared_bytes: int, values: list[Any], dtype: torch.dtype, device: int
    ) -> None:
        instance = self._instances.get((dtype, device)) or self._load(dtype, device)
        if shared_bytes > self._shared_bytes.get(instance.function, 0):
            self._opt_in(instance, shared_bytes)
        stream = _current_stream(device)
        with instance.lock:  # the slots are shared by all threads
            try:
                for slot, value in zip(instance.slots, values, strict=True):
                    slot.value = value
            except TypeError as error:
                raise TypeError(f"{self.name}: {error}; declared kinds: {self.kinds}") from None
            cuda_driver.launch(device, instance.function, grid, block, shared_bytes, stream, instance.parameters)

    def _checked(self, arguments: Sequence[Any]) -> tuple[list[Any], torch.dtype, int]:
        if len(arguments) != len(self._plan):
            raise TypeError(f"{self.name} takes {len(self._plan)} arguments {self.kinds}, got {len(arguments)}")
        values: list[Any] = []
        common = None  # the dtype that all T* share
        device = None
        for (is_pointer, dtype, is_int32), value in zip(self._plan, arguments, strict=True):
            if not is_pointer:
                if is_int32 and not -(2**31) <= value < 2**31:
                    raise ValueError(f"{self.name}: argument {len(values)} is {value}, too large for int32; use int64")
                values.append(value)
                continue
            expected = dtype or common
            if not (
                isinstance(value, torch.Tensor)
                and value.is_cuda
                and value.is_contiguous()
                and (value.dtype is expected if expected is not None else value.dtype in _TYPES)
            ):
                position = len(values)
                raise explain_tensor(self.name, position, self.kinds[position], value, expected, "cuda")
            if device is None:
                device = value.get_device()
            elif device != value.get_device():
                raise ValueError(f"{self.name}: tensors on cuda:{device} and cuda:{value.get_device()} in one launch")
            if dtype is None:
                common = value.dtype
            values.append(value.data_ptr())
        if device is None:
            raise TypeError(f"{self.name} needs a tensor among its arguments, to know the device")
        if common is None:
            common = self.module.recent_dtype
        else:
            self.module.recent_dtype = common
        return values, common, device

    def _load(self, dtype: torch.dtype, device: int) -> _Instance:
        function = self.module.function(self.instance_name(dtype), dtype, device)
        slots = tuple(ctypes.c_void_p() if kind.endswith("*") else _SCALARS[kind]() for kind in self.kinds)
        addresses = [ctypes.addressof(slot) for slot in slots]
        parameters = (ctypes.c_void_p * max(1, len(slots)))(*addresses)
        instance = _Instance(device, function, slots, parameters, threading.Lock())
        self._instances[dtype, device] = instance
        return instance

    def _opt_in(self, instance: _Instance, shared_bytes: int) -> None:
        most = cuda_driver.max_shared_bytes(instance.device)
        if shared_bytes > most:
            raise ValueError(
                f"{self.name}: {shared_bytes} bytes of dynamic shared memory, but a block on this device has {most}; "
                "use smaller tiles or fewer stages"
            )
        cuda_driver.set_shared_bytes(instance.function, shared_bytes)
        self._shared_bytes[instance.function] = shared_bytes


def compile_only(source: str, archs: Sequence[str] = ("sm_80", "sm_90")) -> dict[tuple[str, str], int]:
    """Compile every kernel of a kernel file for every dtype, without a GPU.

    The file's top level is executed, so this is for files one trusts, such as the starters.

    Args:
        source: The text of the kernel file.
        archs: Architectures to compile for.

    Returns:
        The size of each cubin in bytes, by (architecture, dtype).

    Raises:
        CompileError: A kernel does not compile.
        UsageError: The file makes no `CudaModule`.
    """
    namespace: dict[str, Any] = {"__name__": "kernel"}
    exec(builtins.compile(source, "kernel.py", "exec"), namespace)
    modules = {id(value): value for value in namespace.values() if isinstance(value, CudaModule)}
    if not modules:
        raise UsageError("the kernel file makes no module with cuda.compile at its top level")
    sizes = {}
    for arch in archs:
        for name in CUDA_TYPES:
            cubins = [module.cubin(arch, getattr(torch, name)) for module in modules.values()]
            sizes[arch, name] = sum(len(cubin.code) for cubin in cubins)
    return sizes


def describe() -> str:
    """Return NVRTC's version, the folder of its headers and whether a GPU is there, in one line.

    Raises:
        BackendUnavailable: NVRTC or its headers are missing.
    """
    major, minor = nvrtc.version()
    headers = nvrtc.include_dirs()[0]
    usable = torch.cuda.is_available() and torch.version.hip is None
    device = torch.cuda.get_device_name() if usable else "no NVIDIA GPU here, so compiling only"
    return f"NVRTC {major}.{minor}, headers in {headers}; {device}"


def _words(name: str) -> list[str]:
    return re.findall(r"\w+|\W+", name)


def _triple(size: Any) -> _Triple:
    if isinstance(size, int):
        return size, 1, 1
    x, y, z = (*size, 1, 1)[:3]
    return x, y, z


@functools.cache
def _arch(device: int) -> str:
    if torch.version.hip is not None:
        raise DeviceUnavailable("CUDA kernels need an NVIDIA GPU, and this torch is built for ROCm; use Triton kernels")
    major, minor = torch.cuda.get_device_capability(device)
    # From 9.0 on, the instructions of one architecture only (wgmma, TMA multicast) need the suffix.
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _current_stream(device: int) -> int:
    if _raw_stream is not None:
        return int(_raw_stream(device))
    return int(torch.cuda.current_stream(device).cuda_stream)


# What Triton's launcher uses too; the public way makes a Stream object each time.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
