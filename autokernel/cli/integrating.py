"""Commands that put kernels back into a model: ``integrate`` and ``check-model``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autokernel.cli.arguments import DeviceOption, DtypeOption, JsonOption, RootOption, one_of
from autokernel.cli.console import emit_json, say
from autokernel.cli.locating import ROOT, TARGET
from autokernel.errors import UsageError

if TYPE_CHECKING:
    from autokernel.integration import InputCheck, ModelCheck

__all__ = ["register"]

ModelArgument = Annotated[
    str, typer.Argument(help="FILE.py:CLASS, MODULE:CALLABLE, hf:FOLDER or PROGRAM.pt2.", show_default=False)
]
KernelOption = Annotated[
    list[str], typer.Option("--kernel", help="A run (its kept kernel) or a kernel.py; repeatable.", show_default=False)
]
InputOption = Annotated[
    list[str] | None, typer.Option(help="Sizes and dtype, such as 4x128:int64 or NAME=4x128:int64; repeatable.")
]
AdmitOption = Annotated[
    str,
    typer.Option(
        callback=one_of("verified", "checked", "range"),
        help="Which calls kernels may take: verified sizes, also checked ones, or a range.",
    ),
]
VerifyOption = Annotated[bool, typer.Option("--verify", help="Verify kernels that have no accepted verdict now.")]
UnverifiedOption = Annotated[bool, typer.Option("--unverified", help="Load kernels without a verdict.")]
SeedOption = Annotated[int, typer.Option(help="Of random weights and inputs.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    app.command()(integrate)
    app.command("check-model")(check_model)


def integrate(
    model: ModelArgument,
    kernel: KernelOption,
    input: InputOption = None,
    admit: AdmitOption = "verified",
    verify: VerifyOption = False,
    unverified: UnverifiedOption = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    seed: SeedOption = 0,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Show where kernels would run in a model, and why not elsewhere (exit 1 if nowhere)."""
    import torch

    from autokernel.integration import integration_of
    from autokernel.integration.trees import as_call, clone

    fast, given = _prepared(model, kernel, input, admit, verify, unverified, device, dtype, seed, root)
    copied = clone(as_call(given))
    with torch.no_grad():
        fast(*copied.args, **copied.kwargs)
    report = integration_of(fast).report()
    if as_json:
        emit_json(report.to_dict())
    else:
        say(report)
    raise typer.Exit(0 if report.kernel_calls else 1)


def check_model(
    model: ModelArgument,
    kernel: KernelOption,
    input: InputOption = None,
    admit: AdmitOption = "verified",
    verify: VerifyOption = False,
    unverified: UnverifiedOption = False,
    vary: Annotated[bool, typer.Option("--vary/--no-vary", help="Try another batch and length too.")] = True,
    timed: Annotated[bool, typer.Option("--time/--no-time", help="Time the model.")] = True,
    compile: Annotated[bool, typer.Option("--compile", help="Time torch.compile of both models too.")] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(help="Part of the model's time, such as rmsnorm=0.2 or rmsnorm=0.2:3.1; repeatable."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="What the timing may take.")] = 5.0,
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    seed: SeedOption = 0,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Put kernels into a model and compare it with the plain one: outputs and time.

    Exit 1 if it fails, and 2 if no kernel ran, so that nothing was compared."""
    from autokernel.integration import check_model as check

    shares = _shares(share)
    fast, given = _prepared(model, kernel, input, admit, verify, unverified, device, dtype, seed, root)
    outcome = check(fast, given, vary=vary, timed=timed, compiled=compile, shares=shares, seconds=seconds, seed=seed)
    if not outcome.ok and not outcome.proven and all(one.ok for one in outcome.inputs):
        raise UsageError(outcome.reason)
    if as_json:
        emit_json(outcome.to_dict())
    else:
        _show(outcome)
    raise typer.Exit(0 if outcome.ok else 1)


def _prepared(
    model: str,
    kernels: list[str],
    texts: list[str] | None,
    admit: str,
    verify: bool,
    unverified: bool,
    device: str,
    dtype: str | None,
    seed: int,
    root: Path,
) -> tuple[Any, Any]:
    """The model with its kernels, and its inputs."""
    import torch

    from autokernel.hardware import detect
    from autokernel.integration import integrate as put_in
    from autokernel.integration.trees import mapped
    from autokernel.ops.spec import dtype_named
    from autokernel.profiling.loading import load, make_inputs

    found = [_kernel_path(name, root) for name in kernels]
    place = torch.device(detect(device).torch_name)
    torch.manual_seed(seed)
    loaded = load(model)
    if not isinstance(loaded.model, torch.nn.Module):
        raise UsageError(f"{model} gives a {type(loaded.model).__name__}; kernels are put into a torch.nn.Module")
    plain = loaded.model.to(place, None if dtype is None else dtype_named(dtype))
    plain = plain if model.endswith(".pt2") else plain.eval()
    own = next((value.dtype for value in plain.parameters() if value.is_floating_point()), torch.float32)
    if texts:
        inputs: Any = make_inputs(texts, dtype=own, device=place, vocabulary=loaded.vocabulary, seed=seed)
    elif loaded.inputs is not None:
        inputs = mapped(loaded.inputs, lambda value: value.to(place, own if value.is_floating_point() else None))
    else:
        raise UsageError(f"{model} comes without inputs; give their sizes with --input, such as --input 4x128:int64")
    return put_in(plain, found, inputs, admit=admit, verify=verify, unverified=unverified), inputs


def _kernel_path(name: str, root: Path) -> Path:
    if not Path(name).exists() and (root / name / TARGET).is_file():
        return root / name
    return Path(name)


def _shares(texts: list[str] | None) -> dict[str, float | tuple[float, float]] | None:
    """Read ``rmsnorm=0.2`` (a share) and ``rmsnorm=0.2:3.1`` (share and speedup)."""
    if not texts:
        return None
    shares: dict[str, float | tuple[float, float]] = {}
    for text in texts:
        name, _equals, value = text.partition("=")
        share, colon, speedup = value.partition(":")
        try:
            shares[name] = (float(share), float(speedup)) if colon else float(share)
        except ValueError:
            raise UsageError(
                f"cannot read the share {text!r}; write OPERATION=FRACTION or OPERATION=FRACTION:SPEEDUP"
            ) from None
    return shares


def _show(outcome: ModelCheck) -> None:
    from autokernel.cli.rendering import ratio_text

    say(outcome.report)
    say("\nOutputs: relative error against a copy in higher precision")
    for one in outcome.inputs:
        _show_input(one)
    if outcome.timing is not None:
        say(f"\nTime of one call, median of {outcome.timing.rounds} rounds in turn")
        for name, model in outcome.timing.models.items():
            spread = f"({model.low_us:.1f} to {model.high_us:.1f})"
            device = "" if model.device_us is None else f"  device {model.device_us:.1f} us"
            say(f"  {name:<20} {model.wall_us:>12.1f} us {spread}{device}")
        for kind, ratios in (("wall", outcome.timing.speedups), ("device", outcome.timing.device_speedups)):
            for name, ratio in ratios.items():
                say(f"  {name} ({kind} time): {ratio_text(ratio)}")
        for note in outcome.timing.notes:
            say(f"  {note}")
    if outcome.predicted is not None:
        say(f"  predicted by Amdahl's law from the shares: {outcome.predicted:.3f}x")
    if outcome.blame is not None:
        say(f"\n{outcome.blame}")
    say("\npassed" if outcome.ok else f"\nfailed: {outcome.reason}")


def _show_input(one: InputCheck) -> None:
    if one.untested:
        say(f"  {one.name}: not tested: {one.untested}")
        return
    say(f"  {one.name}: kernels ran {one.kernel_calls} times, originals {one.original_calls} times; {one.precision}")
    for output in one.outputs:
        state = "ok" if output.ok else f"FAILS: {output.reason}"
        say(
            f"    {output.path}: plain {output.original:.2e}, with kernels {output.integrated:.2e}, "
            f"bound {output.bound:.2e}: {state}"
        )
    if one.language is not None:
        found = one.language
        say(
            f"    greedy tokens: {found.same:.2%} of {found.tokens} the same; right: plain {found.original_right:.2%}, "
            f"with kernels {found.integrated_right:.2%}"
        )
        say(
            f"    loss: {found.loss:.6f}; plain {found.original_loss - found.loss:+.1e}, "
            f"with kernels {found.integrated_loss - found.loss:+.1e}"
        )
    if one.note:
        say(f"    {one.note}")
