"""Makes a run: checks everything that could be wrong with it, and only then writes a folder.

A mistake in the operation, backend, device, dtype, sizes, name or starting kernel is found here, in
one clear message, and not by the first experiment.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from autokernel import files, ops, starters, tuned
from autokernel.commit_message import commit_message
from autokernel.errors import DeviceUnavailable, InvalidKernel, UsageError
from autokernel.events import EventLog
from autokernel.experiment import Experiment
from autokernel.hints import did_you_mean
from autokernel.history import EXPERIMENTS, History, blob_id
from autokernel.journal import Journal
from autokernel.ops.spec import KernelSpec
from autokernel.policy import PolicySettings
from autokernel.results import ResultsFile
from autokernel.runfolder import Paths
from autokernel.target import FILE, Target, Timing
from autokernel.verifier.layouts import check_layout

__all__ = ["choose_backend", "choose_device", "create", "read_start"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*$")
_DEVICE = re.compile(r"(cpu|cuda(:\d+)?)$")


def create(
    operation: str,
    *,
    backend: str,
    device: str,
    dtype: str | None,
    shapes: Sequence[Mapping[str, int] | Timing] | None,
    root: Path,
    name: str | None,
    agent: str,
    approval: str,
    policy: PolicySettings,
    start: str | Path | None,
    compiled: bool,
) -> Path:
    """Make a run folder and return its path; the arguments are those of `Session.create`.

    Raises:
        UsageError: Something does not fit.
        DeviceUnavailable: There is no such device.
        RunUnwritable: The folder cannot be made.
    """
    reference = _absolute(operation)
    spec = ops.resolve(reference)
    device = choose_device(device)
    if start == "tuned":
        source: str | None = _tuned(spec.name, backend, device)
    else:
        source = None if start is None else read_start(start, spec.name)
    backend = choose_backend(spec.name, backend, device, source)
    dtype = _dtype(spec, dtype, device)
    timing = _timing(spec, shapes, device)
    if name is None:
        name = _free_name(root, spec.name)
    folder = _folder(root, name)
    target = Target(
        reference=reference, operation=spec.name, tag=name, backend=backend, device=device, dtype=dtype, timing=timing,
        agent=agent, approval=approval, compiled=compiled, policy=policy,
    )  # fmt: skip
    whence = f"the {backend} starter of {spec.name}" if source is None else "the kernel that the run starts from"
    if start == "tuned":
        whence = f"the tuned {backend} kernel of {spec.name}"
    text = starters.source(spec.name, backend) if source is None else source
    whose = "starter" if source is None else "tuned" if start == "tuned" else "person"
    _create_folder(folder, target, text, hypothesis=f"Baseline: {whence}", agent=whose)
    return folder


def choose_device(device: str) -> str:
    """Return the device that ``device`` means, checked to be there.

    Raises:
        UsageError: It is no device's name.
        DeviceUnavailable: There is no such device.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if count else "cpu"
    if not _DEVICE.match(device):
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:<index>")
    index = int(device.partition(":")[2] or 0)
    if device != "cpu" and index >= count:
        have = f"{count} GPUs" if count else "no GPU"
        raise DeviceUnavailable(f"no device {device!r}: PyTorch sees {have} here; use cpu, or see `autokernel doctor`")
    return device


def choose_backend(operation: str, backend: str, device: str, source: str | None) -> str:
    """Return the backend that ``backend`` means: what measures real speed on the device, by preference.

    Raises:
        UsageError: The backend is unknown, does not run on the device, has no starter, or is not the
            one that the starting kernel is written in.
    """
    usable = ("cpp", "triton") if device == "cpu" else ("triton", "cuda")
    if backend != "auto" and backend not in starters.BACKENDS:
        hint = did_you_mean(backend, starters.BACKENDS)
        raise UsageError(f"unknown backend {backend!r}{hint}; use auto, {', '.join(starters.BACKENDS)}")
    if source is not None:
        stated = _constants(source).get("BACKEND", "triton")
        if backend not in ("auto", stated):
            raise UsageError(f"the starting kernel says BACKEND = {stated!r}, but {backend!r} was asked for")
        backend = stated
    have = starters.backends(operation)
    if backend == "auto":
        backend = next((one for one in usable if one in have), usable[0])
    if backend not in usable:
        raise UsageError(f"the backend {backend!r} does not run on {device}; there: {', '.join(usable)}")
    if source is None and backend not in have:
        starters.source(operation, backend)  # raises, and lists the backends that have one
    return backend


def read_start(start: str | Path, operation: str) -> str:
    """Return the text of the kernel to start from.

    Args:
        start: A path, or the text itself (which has more than one line).
        operation: What it must compute.

    Raises:
        InvalidKernel: It cannot be read, is no Python, or is a kernel of another operation.
    """
    text, where = str(start), "the starting kernel"
    if isinstance(start, Path) or "\n" not in start:
        where = str(start)
        try:
            text = Path(start).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidKernel(f"cannot read the starting kernel {where}: {error}") from None
    try:
        stated = _constants(text, where).get("KERNEL_TYPE")
    except (SyntaxError, ValueError) as error:
        raise InvalidKernel(f"{where} is no Python: {error}") from None
    if stated is not None and stated != operation:
        raise InvalidKernel(f"{where} says KERNEL_TYPE = {stated!r}, but the run is for {operation!r}")
    if "kernel_fn" not in text:
        raise InvalidKernel(
            f"{where} defines no kernel_fn; see the signature with `autokernel doctor` or docs/design.md"
        )
    return text


def _tuned(operation: str, backend: str, device: str) -> str:
    """The text of the tuned kernel to start from, in the backend that is asked for or the first that runs."""
    usable = ("triton",) if device == "cpu" else tuned.BACKENDS
    if backend == "auto":
        backend = next((one for one in usable if one in tuned.backends(operation)), usable[0])
    return tuned.source(operation, backend)


def _absolute(operation: str) -> str:
    """A file's reference with its whole path, so that the run can be opened from another folder."""
    path, colon, name = operation.rpartition(":")
    if path.endswith(".py"):
        return f"{Path(path).resolve()}{colon}{name}"
    return str(Path(operation).resolve()) if operation.endswith(".py") else operation


def _constants(source: str, where: str = "kernel.py") -> dict[str, str]:
    """The module-level assignments of plain text; ``where`` is named if the source is no Python."""
    found: dict[str, str] = {}
    for node in ast.parse(source, where).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= {one.id: node.value.value for one in node.targets if isinstance(one, ast.Name)}
    return found


def _dtype(spec: KernelSpec, dtype: str | None, device: str) -> str:
    if dtype is None:
        return spec.usual_dtype(gpu=device != "cpu")
    if dtype not in spec.dtypes:
        hint = did_you_mean(dtype, spec.dtypes)
        raise UsageError(f"{spec.name} is not defined for {dtype!r}{hint}; use {', '.join(spec.dtypes)}")
    return dtype


def _timing(spec: KernelSpec, shapes: Sequence[Mapping[str, int] | Timing] | None, device: str) -> tuple[Timing, ...]:
    if shapes is None:
        own = (spec.cpu_timing_shapes if device == "cpu" else ()) or spec.timing_shapes
        shapes = own or [max((*spec.shapes, *spec.large_shapes), key=_volume)]
    elif not shapes:
        raise UsageError(f"shapes is empty; give at least one, such as {dict(spec.shapes[0])}")
    timing = tuple(one if isinstance(one, Timing) else Timing(shape=one) for one in shapes)
    for one in timing:
        _check_timing(spec, one)
    return timing


def _check_timing(spec: KernelSpec, timing: Timing) -> None:
    names, shape = list(spec.shapes[0]), timing.shape
    if not timing.weight > 0:
        raise UsageError(f"the weight of {dict(shape)} is {timing.weight!r}; it must be above 0")
    if not (timing.model_us is None or timing.model_us > 0):
        raise UsageError(f"the model's time for {dict(shape)} is {timing.model_us!r} us; it must be above 0, or None")
    options = {name for entry in (*spec.options, *spec.extensions) for name in entry}
    if not options.issuperset(timing.options):
        raise UsageError(
            f"the options {dict(timing.options)} do not fit {spec.name}, whose options are "
            f"{', '.join(sorted(options)) or 'none'}"
        )
    if set(shape) != set(names):
        raise UsageError(f"the shape {dict(shape)} does not fit {spec.name}, whose sizes are {', '.join(names)}")
    for name, size in shape.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"the size {name}={size!r} of {spec.name} is no positive integer")
    check_layout(timing.layout, spec.strided_inputs)


def _volume(shape: Mapping[str, int]) -> int:
    volume = 1
    for size in shape.values():
        volume *= size
    return volume


def _free_name(root: Path, operation: str) -> str:
    number = 1
    while (root / f"{operation}-{number}").exists():
        number += 1
    return f"{operation}-{number}"


def _folder(root: Path, name: str) -> Path:
    if not _NAME.match(name) or ".." in name or name.endswith((".", ".lock")):
        raise UsageError(f"{name!r} cannot name a run (and its branch); use letters, digits, '-', '_' and '.'")
    folder = root / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists and is not empty; go on with it (Session.open, `autokernel run {folder}`), or choose "
            "another name"
        )
    return folder


def _create_folder(folder: Path, target: Target, source: str, *, hypothesis: str, agent: str) -> None:
    """Make a run folder whose experiment 0 is ``source``, not yet judged.

    Args:
        folder: Does not exist, or is empty.  It appears under its name only when it is complete.
        target: What is optimised.
        source: The kernel to start from.
        hypothesis: What it is.
        agent: Where it is from.

    Raises:
        RunUnwritable: The folder cannot be made.
    """
    with files.writable(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = next(path for path in _unused(folder) if not path.exists())
        (making / ".autokernel" / "experiments").mkdir(parents=True)
        (making / ".autokernel" / "commands").mkdir()
    paths = Paths(making)
    experiment = Experiment(number=0, hypothesis=hypothesis, agent=agent, blob=blob_id(source), timestamp=files.now())
    tracked = {"kernel.py": source, FILE: target.to_toml()}
    history, note = History.create(making, target.branch, tracked, commit_message(experiment))
    experiment = dataclasses.replace(experiment, commit=history.head())
    history.set_refs({f"{EXPERIMENTS}/0": experiment.commit})
    journal = Journal(paths.journal)
    journal.write("proposed", experiment=experiment)
    if note:
        journal.write("note", text=note)
    ResultsFile(paths.results, paths.aside).create()
    EventLog(paths.events).write("created", operation=target.operation, backend=target.backend, device=target.device)
    with files.writable(folder):
        making.rename(folder)


def _unused(folder: Path) -> list[Path]:
    return [folder.with_name(f".{folder.name}.making{number}") for number in itertools.islice(itertools.count(), 1000)]
