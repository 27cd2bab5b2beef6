"""The single checks of `autokernel.doctor`: each returns lines of the report.

A check says what is there in ``value`` and, unless all is well, how to get the rest in ``fix``.  It may
raise: the report then shows the error as its line.  Nothing is installed, changed or sent, and no secret
is shown.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autokernel.hardware import Roofline

__all__ = [
    "Check",
    "cache",
    "cpp",
    "cuda",
    "device",
    "figures",
    "git",
    "isolation",
    "llm_key",
    "notebooks",
    "python",
    "torch",
    "triton",
]

_INTERPRETED_KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, 2 * tl.load(x_ptr + offs))

x = torch.ones(8)
double[(1,)](x, BLOCK=8)
assert x.tolist() == [2.0] * 8, x
"""


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: What was looked for.
        status: ``ok``, ``warn`` (works, with a limit) or ``missing``.
        value: What was found.
        fix: How to get what is missing, or "".
    """

    name: str
    status: str
    value: str
    fix: str = ""


def python() -> Iterator[Check]:
    """The interpreter."""
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable}, {platform.platform(terse=True)}")


def torch() -> Iterator[Check]:
    """PyTorch, and whether its build fits the GPU that the machine has."""
    if importlib.util.find_spec("torch") is None:
        yield Check("torch", "missing", "not installed", "pip install torch")
        return
    import torch as module

    value = module.__version__
    for vendor, node, build in (("NVIDIA", "/dev/nvidia0", "CUDA"), ("AMD", "/dev/kfd", "ROCm")):
        if Path(node).exists() and not module.cuda.is_available():
            fix = f"install a {build} build of PyTorch, and check the driver"
            yield Check("torch", "warn", f"{value} cannot use the {vendor} GPU that is here ({node})", fix)
            return
    yield Check("torch", "ok", value)


def device(line: Roofline) -> Iterator[Check]:
    """The device, its data sheet, and what was measured."""
    found, peaks, sheet = line.device, line.measured, line.sheet
    facts = [str(found), f"driver {found.driver}" if found.driver else "", found.runtime]
    if found.cache_bytes:
        facts.append(f"{line.cache_bytes / 2**20:.0f} MiB cache")
    yield Check("device", "ok", ", ".join(fact for fact in facts if fact))

    if sheet is not None:
        value = f"{sheet.card}: {sheet.bandwidth_gb_per_s:g} GB/s; {_rates(sheet.tflop_per_s)} ({sheet.source})"
        yield Check("data sheet", "ok", value)
    elif found.is_gpu:
        fix = "add the card to autokernel/hardware/datasheets.py if you have its data sheet"
        yield Check("data sheet", "warn", "not listed; the measured figures below are used", fix)
    else:
        yield Check("data sheet", "ok", "none for CPUs; the measured figures below are used")

    copy, read = f"{peaks.copy_gb_per_s:.4g} GB/s copy", f"{peaks.read_gb_per_s:.4g} GB/s read"
    share = f" ({peaks.copy_gb_per_s / sheet.bandwidth_gb_per_s:.0%} of the data sheet)" if sheet else ""
    status, fix = "ok", ""
    if not peaks.steady:
        status, fix = "warn", "the samples scattered: stop what else uses the machine, then run this again"
    yield Check("bandwidth", status, f"{copy}{share}, {read}", fix)
    yield Check("matrix rate", status, _rates(peaks.tflop_per_s, sheet.tflop_per_s if sheet else None), fix)
    yield Check("launch", "ok", f"{peaks.launch_us:.2g} µs for PyTorch's smallest operator")


def triton() -> Iterator[Check]:
    """Triton, and one kernel in its interpreter, which verifies Triton kernels where there is no GPU."""
    version = _version("triton")
    if version is None:
        yield Check("triton", "missing", "not installed", "pip install triton (Linux only)")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kernel.py"  # the interpreter reads the kernel's text from its file
        program.write_text(_INTERPRETED_KERNEL)
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        command = [sys.executable, str(program)]
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    if done.returncode == 0:
        lacking = _lacking_for_gpu()
        if lacking:
            fix = "apt-get install gcc python3-dev"
            yield Check("triton", "warn", f"{version}; on this GPU it needs {lacking} to build its launcher", fix)
        else:
            yield Check("triton", "ok", f"{version}, its interpreter works")
        return
    reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    fix = "pip install numpy" if "numpy" in reason else "reinstall triton"
    yield Check("triton", "warn", f"{version}, but its interpreter fails: {reason}", fix)


def _lacking_for_gpu() -> str:
    """What Triton's launcher is built with on a GPU and this machine lacks, or ""."""
    from autokernel.hardware import detect

    if not detect("auto").is_gpu:
        return ""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if compiler and header.exists() else "Python.h" if compiler else "a C compiler"


def cpp() -> Iterator[Check]:
    """The C++ compiler that the C++ backend uses."""
    from autokernel import backends

    there, value = backends.available("cpp")
    if not there:
        yield Check("c++ compiler", "missing", value, "apt-get install g++ (or set CXX)")
        return
    yield Check("c++ compiler", "ok", f"{value}, {'with' if _has_openmp() else 'without'} OpenMP")


def _has_openmp() -> bool:
    from autokernel.backends import cpp as backend

    text = "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n"
    with tempfile.TemporaryDirectory() as folder:
        command = [*backend.compiler(), "-fopenmp", "-x", "c++", "-", "-o", str(Path(folder) / "program")]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0


def cuda() -> Iterator[Check]:
    """NVRTC, which compiles CUDA kernels; neither nvcc nor a GPU is needed for that."""
    from autokernel import backends

    there, value = backends.available("cuda")
    if not there:
        yield Check("cuda compiler", "missing", value, "pip install autokernel, which brings cuda-core and NVRTC")
        return
    reason = _arch_not_compiled()
    if reason:
        yield Check("cuda compiler", "warn", f"{value}; {reason}", "use Triton on this GPU, or an older NVRTC")
    else:
        yield Check("cuda compiler", "ok", value)


def _arch_not_compiled() -> str:
    """Why NVRTC cannot compile for the NVIDIA GPU that is here, or "" if it can or there is none."""
    from autokernel.backends import nvrtc
    from autokernel.hardware import detect

    arch = detect("auto").arch
    if not arch.startswith("sm_") or int(arch.removeprefix("sm_")) in nvrtc.supported_archs():
        return ""
    return f"it does not compile for {arch}, which this GPU is"


def git() -> Iterator[Check]:
    """git, and whose name the commits of a run will carry."""
    if shutil.which("git") is None:
        yield Check("git", "missing", "not installed", "apt-get install git")
        return
    done = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=30, check=False)
    yield Check("git", "ok", done.stdout.strip())

    def configured(key: str) -> str:
        command = ["git", "config", "--get", key]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()

    name = os.environ.get("GIT_AUTHOR_NAME") or configured("user.name")
    email = os.environ.get("GIT_AUTHOR_EMAIL") or configured("user.email")
    if name and email:
        yield Check("git identity", "ok", f"{name} <{email}>")
    else:
        fix = 'git config --global user.name "Your Name"; git config --global user.email you@example.org'
        yield Check("git identity", "warn", "none; the commits of a run will carry AutoKernel's name", fix)


def llm_key() -> Iterator[Check]:
    """Whether the LLM agent has a key; the key itself is never shown."""
    server = " for the server of OPENAI_BASE_URL" if os.environ.get("OPENAI_BASE_URL") else ""
    if os.environ.get("OPENAI_API_KEY"):
        yield Check("llm key", "ok", f"OPENAI_API_KEY is set{server}")
    else:
        fix = "export OPENAI_API_KEY=... (and OPENAI_BASE_URL for a server other than OpenAI's)"
        yield Check("llm key", "warn", "none; the offline search agent proposes, which needs no key", fix)


def notebooks() -> Iterator[Check]:
    """The packages that the notebooks need."""
    yield _packages("notebooks", ("jupyterlab", "ipykernel", "ipywidgets", "anywidget"))


def figures() -> Iterator[Check]:
    """plotly, and what writes a figure into a file."""
    packages = _packages("figures", ("plotly", "kaleido"))
    if packages.status != "ok":
        yield packages
        return
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    browser = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, names)), None)
    if browser:
        yield Check("figures", "ok", f"{packages.value}; PNG and SVG through {browser}")
    else:
        fix = "apt-get install chromium (or set BROWSER_PATH)"
        yield Check("figures", "warn", f"{packages.value}; no Chromium, so figures are HTML only", fix)


def isolation() -> Iterator[Check]:
    """How well candidates are confined."""
    from autokernel.runner import sandbox

    meaning = {
        "namespaces": "candidates run in namespaces of their own, without network",
        "landlock": "candidates cannot write outside their folder, but see the network and other processes",
        "process": "candidates run in a process of their own with resource limits, and nothing more",
    }
    level = sandbox.level()
    fix = "" if level == "namespaces" else "allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1)"
    yield Check("isolation", "ok" if level == "namespaces" else "warn", f"{level}: {meaning.get(level, '')}", fix)


def cache() -> Iterator[Check]:
    """Whether measured peaks can be kept."""
    from autokernel.hardware import cache_file, detect

    file = cache_file(detect("cpu"))
    if file is None:
        fix = "set XDG_CACHE_HOME to a folder"
        yield Check("cache", "warn", "no home folder, so peaks are measured each time", fix)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        fix = "make the folder writable, or set XDG_CACHE_HOME"
        yield Check("cache", "warn", f"{file.parent} cannot be written ({error.strerror})", fix)
    else:
        yield Check("cache", "ok", str(file.parent))


def _packages(name: str, wanted: tuple[str, ...]) -> Check:
    versions = {package: _version(package) for package in wanted}
    absent = [package for package, version in versions.items() if version is None]
    value = ", ".join(f"{package} {version}" for package, version in versions.items() if version is not None)
    if absent:
        return Check(
            name,
            "missing",
            f"no {', '.join(absent)}{f' ({value})' if value else ''}",
            f"pip install {' '.join(absent)}",
        )
    return Check(name, "ok", value)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _rates(rates: Mapping[str, float], sheet: Mapping[str, float] | None = None) -> str:
    """``float16 790 (80% of the data sheet), float32 51 TFLOP/s``; the share where the sheet has the dtype."""
    of = sheet or {}
    words = [
        f"{dtype} {rate:.4g}" + (f" ({rate / of[dtype]:.0%} of the data sheet)" if dtype in of else "")
        for dtype, rate in rates.items()
    ]
    return f"{', '.join(words)} TFLOP/s" if words else "none"
