"""The kernels that a model is to use: found, checked for a verdict, loaded into this process.

Loading a kernel.py runs its code here, with all that this process may do.  So a kernel is loaded
only if an accepted verdict is recorded for exactly its text, by hash, on this kind of device; or if
it is verified now, in a process of its own; or if the caller says ``unverified=True``.
"""

from __future__ import annotations

import ast
import atexit
import dataclasses
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autokernel import backends, campaign_plan, ops
from autokernel.errors import InvalidKernel, UsageError
from autokernel.experiment import Experiment
from autokernel.hardware import detect
from autokernel.history import blob_id
from autokernel.integration.evidence import Evidence, defaults_of
from autokernel.measurement import Ratio
from autokernel.ops.spec import KernelSpec
from autokernel.runfolder import RunFolder
from autokernel.runner import kernels as loader
from autokernel.target import FILE
from autokernel.verdict import Verdict
from autokernel.verifier.layouts import name_of

__all__ = ["Kernel", "find_kernels"]

Verify = Callable[[str, KernelSpec, str], Verdict]
_ALIGNMENT = 16  # bytes: the widest load of a GPU thread


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Kernel:
    """One loaded kernel.

    Attributes:
        name: Where it comes from, for people: ``runs/rmsnorm-1 #7`` or the file.
        spec: The operation that it computes.
        source: Its text.
        backend: ``triton``, ``cuda`` or ``cpp``.
        device: ``cpu`` or ``cuda``: where its tensors must lie.
        function: Its ``kernel_fn``.
        evidence: What was verified about it; None if nothing, and the caller wants it so.
        speedup: Over PyTorch, as its run measured it, or None.
        model_speedup: Over what the model runs, where the run's target says what that takes, or None.
        lacks: The operation's options that its ``kernel_fn`` does not take, with the default that it stands for.
        digest: Sixteen hexadecimal digits that identify the text.
    """

    name: str
    spec: KernelSpec
    source: str
    backend: str
    device: str
    function: Callable[..., Any]
    evidence: Evidence | None
    speedup: Ratio | None = None
    model_speedup: float | None = None
    lacks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    digest: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(self.source))

    @property
    def operation(self) -> str:
        return self.spec.name

    def call(self, inputs: Sequence[Tensor], options: Mapping[str, Any]) -> Tensor:
        """Run the kernel; an input whose memory layout was not verified is copied first."""
        passed = [self._laid_out(index, value) for index, value in enumerate(inputs)]
        output = self.function(*passed, **{name: options[name] for name in options if name not in self.lacks})
        if type(output) is not Tensor:
            raise UsageError(f"{self.name} returned {type(output).__name__} instead of a tensor")
        return output

    def _laid_out(self, index: int, value: Tensor) -> Tensor:
        layouts = self.evidence.layouts if self.evidence is not None else frozenset(("offset",))
        aligned = value.storage_offset() * value.element_size() % _ALIGNMENT == 0 or "offset" in layouts
        if value.is_contiguous() and aligned:
            return value
        if index in self.spec.strided_inputs and aligned and name_of(value.shape, value.stride()) in layouts:
            return value
        return value.clone(memory_format=torch.contiguous_format)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_kernels(given: Any, *, verify: bool = False, unverified: bool = False, device: str = "auto") -> list[Kernel]:
    """Load what `integrate` was given.

    Args:
        given: A run folder (path or `RunFolder`), the path or the text of a kernel.py, a `Kernel`, a
            campaign's folder (its runs whose kept kernel is faster than what the model runs), or several of these.
        verify: Verify a text that has no accepted verdict now, in a process of its own.
        unverified: Load it without a verdict.
        device: Where kernels without a run are to be verified and used.

    Raises:
        UsageError: Something is no kernel, has no accepted verdict, or does not run on this device.
        RunDamaged, InvalidSpec, BackendUnavailable: As their modules say.
    """
    if isinstance(given, (str, os.PathLike, RunFolder, Kernel)):
        given = [given]
    if isinstance(given, Mapping):
        given = list(given.values())
    if not isinstance(given, Iterable):
        raise UsageError(f"kernels are {given!r}; give run folders, kernel files, or texts of kernels")
    given = list(given)
    found = [
        _find(one, verify=verify, unverified=unverified, device=device)
        for item in given
        for one in (_kept_in_campaign(Path(item)) if _is_campaign(item) else [item])
    ]
    if not found:
        campaigns = [str(item) for item in given if _is_campaign(item)]
        if campaigns:
            raise UsageError(
                f"no kernel of {', '.join(campaigns)} is faster than what the model runs yet; make more experiments"
            )
        raise UsageError("no kernel was given; give at least one run folder or kernel file")
    return found


def _is_campaign(one: Any) -> bool:
    return isinstance(one, (str, os.PathLike)) and "\n" not in str(one) and (Path(one) / campaign_plan.FILE).is_file()


def _kept_in_campaign(path: Path) -> list[RunFolder]:
    """The runs of a campaign that have something to offer."""
    runs = [RunFolder(path / "runs" / name) for name in campaign_plan.CampaignPlan.load(path).shares]
    return [run for run in runs if _is_faster(run)]


def _is_faster(run: RunFolder) -> bool:
    """Whether the kept kernel is faster than what the model runs, or than PyTorch where that is not known."""
    best = run.best
    if best is None or not best.passed:
        return False
    in_model = campaign_plan.speedup_in_model(run, best.number)
    return in_model > 1 if in_model is not None else best.speedup is not None and best.speedup.low > 1


def _find(one: Any, *, verify: bool, unverified: bool, device: str) -> Kernel:
    if isinstance(one, Kernel):
        return one
    if isinstance(one, RunFolder):
        return _from_run(one, verify=verify, unverified=unverified)
    if isinstance(one, str) and "\n" in one:
        return _from_text(
            one, f"the given text {_digest(one)[:8]}", None, verify=verify, unverified=unverified, device=device
        )
    if not isinstance(one, (str, os.PathLike)):
        raise UsageError(f"{one!r} is no kernel; give a run folder, a kernel.py, or its text")
    path = Path(one)
    if (path / FILE).is_file():
        return _from_run(RunFolder(path), verify=verify, unverified=unverified)
    if not path.is_file():
        raise UsageError(f"{str(path)!r} is neither a run folder nor a kernel file; see `autokernel log` for your runs")
    text = path.read_text(encoding="utf-8-sig")
    run = RunFolder(path.parent) if (path.parent / FILE).is_file() else None
    return _from_text(text, str(path), run, verify=verify, unverified=unverified, device=device)


def _from_run(run: RunFolder, *, verify: bool, unverified: bool) -> Kernel:
    """The kernel that a run has kept: that of its branch, not what the working copy may hold by now."""
    best = run.best
    if best is None:
        raise UsageError(f"{run.path} has kept no kernel yet; judge the first with: autokernel run {run.path.name}")
    return _from_text(run.source(best.number), str(run.path), run, verify=verify, unverified=unverified, device="")


def _from_text(text: str, name: str, run: RunFolder | None, *, verify: bool, unverified: bool, device: str) -> Kernel:
    operation = _stated(text, "KERNEL_TYPE", name)
    reference = run.target.reference if run is not None else operation
    if reference is None:
        raise UsageError(f"{name} states no KERNEL_TYPE, so what it computes is unknown; add the line, or give its run")
    spec = ops.resolve(reference)
    found = detect((run.target.device if run is not None else device) or "auto")
    backend = backends.of(text)
    kind = "cuda" if found.is_gpu else "cpu"
    if (backend == "cpp") != (kind == "cpu"):
        raise UsageError(f"{name} is a {backend} kernel, which does not run on {kind}; give one that was made there")
    experiment = None if run is None else _accepted(run, text)
    evidence = None
    if experiment is not None and run is not None:
        verdict, measured, confirmed = run.judgement(experiment.number)
        if verdict is not None and verdict.accepted and verdict.device.startswith(f"{found.name} ("):
            name = f"{run.path.name} #{experiment.number}"
            evidence = Evidence.of(spec, verdict, (measured, confirmed), f"{run.path}, experiment {experiment.number}")
    if evidence is None and verify:
        evidence = _verified_now(text, name, reference, spec, found.torch_name, run)
    if evidence is None and not unverified:
        raise UsageError(_no_verdict(name, run, found.name))
    function = load_function(text, spec, name)
    speedup = experiment.speedup if experiment is not None and evidence is not None else None
    in_model = None
    if run is not None and experiment is not None and evidence is not None:
        in_model = campaign_plan.speedup_in_model(run, experiment.number)
    lacks = loader.lacking(function, spec.option_names()[1])
    return Kernel(
        name=name, spec=spec, source=text, backend=backend, device=kind, function=function, evidence=evidence,
        speedup=speedup, model_speedup=in_model, lacks={option: defaults_of(spec)[option] for option in lacks},
    )  # fmt: skip


def _accepted(run: RunFolder, text: str) -> Experiment | None:
    """The experiment of a run that judged exactly this text and accepted it: a kept one, else the latest."""
    blob = blob_id(text)
    found = [
        one
        for one in run.experiments
        if one.passed and (one.blob == blob if one.blob else run.source(one.number) == text)
    ]
    return max(found, key=lambda one: (one.decision in ("keep", "baseline"), one.number), default=None)


def _no_verdict(name: str, run: RunFolder | None, device: str) -> str:
    where = f"in {run.path} for exactly this text on {device}" if run is not None else "anywhere for exactly this text"
    return (
        f"{name}: no accepted verdict is recorded {where}, and loading a kernel runs its code in this process; "
        "verify it now with verify=True (--verify), or load it anyway with unverified=True (--unverified)"
    )


def _verified_now(
    text: str, name: str, reference: str, spec: KernelSpec, device: str, run: RunFolder | None
) -> Evidence:
    from autokernel.evaluator import Evaluator

    dtype = run.target.dtype if run is not None else None
    with Evaluator(reference, device=device, dtype=dtype) as evaluator:
        verdict = evaluator.verify(text)
    if not verdict.accepted:
        raise UsageError(f"{name} was verified now, and rejected: {verdict.reason}")
    return Evidence.of(spec, verdict, (), f"verified now on {verdict.device}")


def _stated(text: str, constant: str, where: str) -> str | None:
    try:
        tree = ast.parse(text, where)
    except (SyntaxError, ValueError) as error:
        raise InvalidKernel(f"{where} is not valid Python: {error}") from error
    for node in reversed(tree.body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if any(isinstance(one, ast.Name) and one.id == constant for one in targets) and isinstance(value, ast.Constant):
            return str(value.value)
    return None


def load_function(text: str, spec: KernelSpec, name: str) -> Callable[..., Any]:
    """Import a kernel's text and return its ``kernel_fn``; an equal text is imported once.

    Raises:
        UsageError: It cannot be compiled or imported, or lacks a fitting ``kernel_fn``.
    """
    options = [option for option in defaults_of(spec) if option not in spec.option_names()[1]]
    inputs = len(spec.make_inputs(spec.shapes[0], torch.float32, torch.Generator().manual_seed(0)))
    try:
        return _imported(text, inputs, tuple(options))
    except loader.LoadError as error:
        raise UsageError(f"{name} cannot be loaded: {error}") from None


@functools.lru_cache(maxsize=256)
def _imported(text: str, inputs: int, options: tuple[str, ...]) -> Callable[..., Any]:
    file = _folder() / f"kernel_{_digest(text)}.py"
    file.write_text(text, encoding="utf-8")  # Triton reads the source of its functions from their file
    return loader.load(file, inputs=inputs, options=list(options))[0]


@functools.lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="autokernel-integrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
