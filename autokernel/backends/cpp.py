"""C++ kernels: compiled by the machine's compiler, called through ctypes.

    MODULE = cpp.compile(CPP_SRC, defines={"UNROLL": UNROLL})
    scale = MODULE.function("scale", "dtype", "T*", "T*", "int64")
    scale(x.dtype, x, y, x.numel())

Building takes about half a second, and nothing when the same text was built before.  The header of
`autokernel.backends.cpp_header` stands before the text; line numbers in errors are the text's own.
Compiling and linking are two commands, because linking with ``-ffast-math`` would switch the whole
process to flushing subnormal numbers.

Units: seconds.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from autokernel.backends import elf, toolcache
from autokernel.backends.arguments import POINTER_DTYPES, check_kinds, explain_tensor
from autokernel.backends.cpp_header import AUTOKERNEL_CPP_HEADER, DTYPE_CODES
from autokernel.backends.diagnostics import compile_error
from autokernel.errors import BackendUnavailable, CompileError, UsageError

__all__ = ["BASE_FLAGS", "CppFunction", "CppModule", "compile", "compiler", "describe"]

BASE_FLAGS = (
    *("-O3", "-march=native", "-std=c++17", "-fPIC", "-pthread"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-plt", "-w"),
)
_DIAGNOSTIC_FLAGS = ("-fno-diagnostics-show-caret", "-fdiagnostics-color=never", "-ftemplate-backtrace-limit=2")
_ALLOWED_FLAG = re.compile(
    r"-(O([0-3sg]|fast)?|f(?!plugin|dump|profile|lto)[\w=-]+|m[\w=.,-]+|D\w+(=[\w.+-]*)?|std=[\w+]+)$"
)
_FORBIDDEN = frozenset(
    (
        *("dlopen", "dlmopen", "dlsym", "dlvsym", "dl_iterate_phdr", "system", "popen", "fork", "vfork", "clone"),
        *("execl", "execlp", "execle", "execv", "execvp", "execvpe", "execve", "posix_spawn", "posix_spawnp"),
        *("socket", "connect", "bind", "ptrace", "process_vm_readv", "process_vm_writev", "syscall", "mprotect"),
        *("kill", "mallopt", "open", "open64", "openat", "creat", "fopen", "fopen64", "freopen", "shm_open", "mkfifo"),
    )
)
_MEMORY_LIMIT_KB = 4 * 1024 * 1024
_CODES = {getattr(torch, name): code for name, code in DTYPE_CODES.items()}
_SCALARS: dict[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "dtype": ctypes.c_int,
}


class CppFunction:
    """One ``extern "C"`` function, callable with tensors and numbers; made by `CppModule.function`.

    Tensors must lie on the CPU, be contiguous and have the declared dtype.  The function returns
    nothing; it writes into tensors that the caller allocated.
    """

    def __init__(self, name: str, address: Callable[..., None], kinds: Sequence[str]) -> None:
        self.name = name
        self.kinds = tuple(kinds)
        self._plan = tuple((kind.endswith("*"), POINTER_DTYPES.get(kind), kind) for kind in kinds)
        self._call = address

    def __call__(self, *arguments: Any) -> None:
        """Check the arguments and call.

        Raises:
            TypeError: An argument's type or dtype, or the number of arguments, is not the declared one.
            ValueError: A tensor is not contiguous or not on the CPU.
        """
        if len(arguments) != len(self._plan):
            raise TypeError(f"{self.name} takes {len(self._plan)} arguments {self.kinds}, got {len(arguments)}")
        passed: list[Any] = []
        common = None  # the dtype that all T* share
        for (is_pointer, dtype, kind), value in zip(self._plan, arguments, strict=True):
            if is_pointer:
                expected = dtype or common
                if not (
                    isinstance(value, torch.Tensor)
                    and value.is_cpu
                    and value.is_contiguous()
                    and (value.dtype is expected if expected is not None else value.dtype in _CODES)
                ):
                    position = len(passed)
                    raise explain_tensor(self.name, position, kind, value, expected, "cpu")
                if dtype is None:
                    common = value.dtype
                passed.append(value.data_ptr())
            elif kind == "dtype":
                if value not in _CODES or (common is not None and value is not common):
                    raise TypeError(f"{self.name}: argument {len(passed)} takes the dtype of the T*, got {value!r}")
                common = value
                passed.append(_CODES[value])
            else:
                if kind == "int32" and not -(2**31) <= value < 2**31:
                    raise ValueError(f"{self.name}: argument {len(passed)} is {value}, too large for int32; use int64")
                passed.append(value)
        try:
            self._call(*passed)
        except ctypes.ArgumentError as error:
            raise TypeError(f"{self.name}: {error}; declared kinds: {self.kinds}") from None

    def __repr__(self) -> str:
        return f"<CppFunction {self.name}({', '.join(self.kinds)})>"


@dataclasses.dataclass(frozen=True)
class CppModule:
    """A compiled and loaded C++ text.

    Attributes:
        path: The shared object.
        library: The loaded library, for what `function` does not cover.
    """

    path: Path
    library: ctypes.CDLL

    def function(self, name: str, *kinds: str) -> CppFunction:
        """Return the ``extern "C" void`` function ``name``.

        Args:
            name: Its name in the text.
            kinds: The kind of each parameter; see `autokernel.backends.arguments`.

        Raises:
            UsageError: No such function, or an unknown kind.
        """
        check_kinds(name, kinds)
        try:
            address = getattr(self.library, name)
        except AttributeError:
            raise UsageError(
                f'no function {name!r} in the compiled C++; declare it extern "C" void {name}(...)'
            ) from None
        address.restype = None
        address.argtypes = [ctypes.c_void_p if kind.endswith("*") else _SCALARS[kind] for kind in kinds]
        return CppFunction(name, address, kinds)


def compile(
    source: str,
    *,
    defines: Mapping[str, int | float | bool | str] | None = None,
    flags: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> CppModule:
    """Compile a C++17 text and load it.

    Args:
        source: The text.  `AUTOKERNEL_CPP_HEADER` stands before it.
        defines: Macros, such as the module's tunable constants; True and False become 1 and 0.
        flags: Further compiler flags: ``-O``, ``-f``, ``-m``, ``-D`` and ``-std=``.  They come after
            `BASE_FLAGS` and so win.
        timeout_s: What the compiler may take.

    Raises:
        CompileError: The text does not compile or link, or takes too long.
        BackendUnavailable: No C++ compiler, or no folder to write to.
        UsageError: A flag of another kind.
    """
    command = compiler()
    for flag in flags:
        if not _ALLOWED_FLAG.match(flag):
            raise UsageError(f"compiler flag {flag!r} is not allowed; use -O, -f, -m, -D or -std= flags")
    macros = [f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in (defines or {}).items()]
    options = (*BASE_FLAGS, *flags, *macros)
    key = toolcache.digest((AUTOKERNEL_CPP_HEADER, source, *options, _version(command), _cpu()))
    folder = toolcache.cache_dir()
    target = folder / f"cpp-{key}.so"
    if not target.exists():
        _build(command, source, options, folder, target, timeout_s)
    try:
        return CppModule(target, ctypes.CDLL(str(target)))
    except OSError as error:
        target.unlink(missing_ok=True)
        raise CompileError(f"the compiled C++ could not be loaded: {error}") from error


@functools.lru_cache(maxsize=1)
def compiler() -> tuple[str, ...]:
    """Return the command of the C++ compiler: that of ``CXX``, or the first of g++, c++ and clang++.

    Raises:
        BackendUnavailable: There is none.
    """
    named = os.environ.get("CXX", "")
    for words in [shlex.split(named)] if named else [["g++"], ["c++"], ["clang++"]]:
        path = shutil.which(words[0])
        if path is not None:
            return (path, *words[1:])
    what = f"CXX is {named!r}, which is no program" if named else "none of g++, c++ and clang++ is on the PATH"
    raise BackendUnavailable(f"no C++ compiler: {what}; install one (Debian: apt-get install g++) or set CXX")


def describe() -> str:
    """Return the compiler and its version in one line.

    Raises:
        BackendUnavailable: There is no compiler.
    """
    command = compiler()
    version = _version(command).splitlines()
    return f"{' '.join(command)}: {version[0] if version else 'unknown version'}"


def _build(
    command: Sequence[str], source: str, options: Sequence[str], folder: Path, target: Path, timeout_s: float
) -> None:
    work = toolcache.scratch(folder)
    try:
        text = f'{AUTOKERNEL_CPP_HEADER}\n#line 1 "CPP_SRC"\n{source}\n'
        (work / "kernel.cpp").write_text(text)
        _tool([*command, *options, *_DIAGNOSTIC_FLAGS, "-c", "kernel.cpp", "-o", "kernel.o"], work, source, timeout_s)
        _refuse_trespass(work / "kernel.o")
        runtime = ["-fopenmp"] if "-fopenmp" in options else []  # OpenMP's threads come from a library
        link = [*command, "-shared", "-pthread", *runtime, "-Wl,--no-undefined", "kernel.o", "-o", "kernel.so"]
        _tool(link, work, source, timeout_s)
        toolcache.publish(work / "kernel.so", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _refuse_trespass(compiled: Path) -> None:
    """Refuse code that would load libraries, start processes, open files or reach the network.

    The linker resolves a kernel against the C and C++ runtime only, so no other library can be called
    by name; what remains is to look one up while running, or to leave a name weak, which is bound to
    whatever library of the process has it.  The object file is read, because a runtime that is linked
    statically brings names of its own.
    """
    imported = elf.undefined_names(compiled.read_bytes())
    unfit = sorted(name for name in imported if name.lstrip("_").removeprefix("libc_") in _FORBIDDEN)
    if unfit:
        raise CompileError(
            f"CPP_SRC uses {', '.join(unfit)}; a kernel computes and has no use for libraries, processes, files or "
            "sockets"
        )
    weak = sorted(name for name, is_weak in imported.items() if is_weak and not name.startswith(("_", "pthread_")))
    if weak:
        raise CompileError(
            f"CPP_SRC declares {', '.join(weak)} weak and does not define it; define it, because another library of "
            "the process could be called in its place"
        )


def _tool(arguments: Sequence[str], work: Path, source: str, timeout_s: float) -> None:
    # The limits reach the compiler's children too, and it stays in our process group, so that
    # whoever kills the group leaves nothing behind.
    limits = f"ulimit -t {int(timeout_s) + 1} 2>/dev/null; ulimit -v {_MEMORY_LIMIT_KB} 2>/dev/null; "
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(work)}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", limits + 'exec "$@"', "sh", *arguments],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"the C++ compiler took more than {timeout_s:g} s; simplify the text") from None
    except OSError as error:
        raise BackendUnavailable(f"the C++ compiler {arguments[0]} could not be started: {error}") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise CompileError(f"the C++ compiler was stopped (signal {-done.returncode}): too much time or memory")
    if done.returncode != 0:
        raise compile_error("CPP_SRC", source, done.stdout + done.stderr)


@functools.lru_cache(maxsize=4)
def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout


@functools.lru_cache(maxsize=1)
def _cpu() -> str:
    # -march=native means another thing on another CPU.
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    wanted = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return hashlib.sha256("\n".join(sorted(set(wanted))).encode()).hexdigest()
