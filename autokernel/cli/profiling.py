"""The command ``profile``: a model in, its operations ranked by what can be recovered out."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autokernel.cli.arguments import DeviceOption, DtypeOption, JsonOption
from autokernel.cli.console import console, emit_json, say, text
from autokernel.errors import UsageError
from autokernel.plaintext import one_line

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport, Target

__all__ = ["register"]

_ROWS = 20


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    app.command()(profile)


def profile(
    model: Annotated[
        str,
        typer.Argument(
            help="FILE.py:CLASS, MODULE:CALLABLE, hf:FOLDER (a configuration), PROGRAM.pt2, or a saved report (.json).",
            show_default=False,
        ),
    ],
    input: Annotated[
        list[str] | None, typer.Option(help="Sizes and dtype, such as 4x2048:int64 or NAME=4x2048:int64; repeatable.")
    ] = None,
    arg: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the class, or a field of the configuration; repeatable.")
    ] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    train: Annotated[bool, typer.Option("--train", help="Training mode; evaluation mode otherwise.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Forward and backward.")] = False,
    repeats: Annotated[int, typer.Option(min=1, max=20, help="Timed passes of each kind.")] = 3,
    what_if: Annotated[
        list[str] | None, typer.Option(help="NAME=2.0, NAME=floor or NAME=free, a target or an operation; repeatable.")
    ] = None,
    capture: Annotated[
        list[str] | None, typer.Option(help="MODULE=FILE.py: write a spec of a module or target; repeatable.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the targets (.html, .png, .svg, .pdf).")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace (.json, .json.gz).")] = None,
    memory: Annotated[Path | None, typer.Option(help="Write a snapshot of the GPU's memory.")] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of the table.")] = _ROWS,
    as_json: JsonOption = False,
) -> None:
    """Profile a model and rank its operations."""
    changes = [_what_if(one) for one in what_if or ()]
    captures = [_capture(one) for one in capture or ()]
    if model.endswith(".json") and not model.startswith("hf:"):
        from autokernel.profiling import ProfileReport

        report = ProfileReport.load(model)
    else:
        report = _profiled(
            model, input, _arguments(arg or ()), device, dtype, train=train, backward=backward, repeats=repeats,
            trace=trace, memory=memory, quiet=as_json,
        )  # fmt: skip
    prediction = report.what_if(dict(changes)) if changes else None
    for what, file in captures:
        path = report.capture(what, file)
        if not as_json:
            say(f"{what} is written as a spec to {path}")
    if save is not None:
        report.save(save)
    if plot is not None:
        from autokernel import plots

        plots.save(plots.amdahl(report), plot)
    if as_json:
        data = report.to_dict()
        emit_json(data if prediction is None else {**data, "what_if": vars(prediction)})
        return
    _show(report, rows)
    if prediction is not None:
        say(f"what if: {_ms(prediction.device_us)} of device time, {prediction.speedup:.3f}x")


def _profiled(
    text: str,
    shapes: Sequence[str] | None,
    arguments: Mapping[str, Any],
    device: str,
    dtype: str | None,
    *,
    train: bool,
    backward: bool,
    repeats: int,
    trace: Path | None,
    memory: Path | None,
    quiet: bool,
) -> ProfileReport:
    import torch
    from torch.utils import _pytree as pytree

    from autokernel import hardware
    from autokernel.ops.spec import dtype_named
    from autokernel.profiling import profile as profiled
    from autokernel.profiling.loading import load, make_inputs

    place = torch.device(hardware.detect(device).torch_name)
    torch.manual_seed(0)
    loaded = load(text, arguments)
    if isinstance(loaded.model, torch.nn.Module):
        loaded.model.to(place, None if dtype is None else dtype_named(dtype))
    weights = iter(loaded.model.parameters()) if isinstance(loaded.model, torch.nn.Module) else iter(())
    own = next((one.dtype for one in weights if one.is_floating_point()), torch.float32)
    if shapes:
        inputs: Any = make_inputs(shapes, dtype=own, device=place, vocabulary=loaded.vocabulary)
    elif loaded.inputs is not None:
        inputs = pytree.tree_map_only(torch.Tensor, lambda one: _moved(one, place, own), loaded.inputs)
    else:
        raise UsageError(f"{text} comes without inputs; give their sizes with --input, such as --input 4x2048:int64")
    mode = None if text.endswith(".pt2") else train  # a program has the mode that it was exported in
    return profiled(
        loaded.model, inputs, backward=backward, train=mode, repeats=repeats, trace=trace, memory=memory,
        progress=None if quiet else _progress,
    )  # fmt: skip


def _moved(tensor: Any, place: Any, dtype: Any) -> Any:
    return tensor.to(place, dtype) if tensor.is_floating_point() else tensor.to(place)


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{what} ...", end="", file=sys.stderr, flush=True)
        if what.startswith("reading"):
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _arguments(texts: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` texts; a value that is no Python literal is text."""
    found: dict[str, Any] = {}
    for item in texts:
        name, sign, value = item.partition("=")
        if not sign or not name.isidentifier():
            raise UsageError(f"cannot read --arg {item!r}; write it as NAME=VALUE")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _what_if(item: str) -> tuple[str, float | str]:
    name, sign, value = item.rpartition("=")
    try:
        return name if sign else item, value if value in ("floor", "free") else float(value.rstrip("x"))
    except ValueError:
        raise UsageError(f"cannot read --what-if {item!r}; write it as NAME=2.0, NAME=floor or NAME=free") from None


def _capture(item: str) -> tuple[str, Path]:
    name, sign, file = item.rpartition("=")
    if not sign or not file:
        raise UsageError(f"cannot read --capture {item!r}; write it as MODULE=FILE.py")
    return name, Path(file)


def _show(report: ProfileReport, rows: int) -> None:
    """Print the totals and the table."""
    totals = report.totals
    inputs = ", ".join("x".join(map(str, one.shape)) + f" {one.dtype}" for one in report.inputs)
    mode = f"{'training' if report.training else 'evaluation'}, forward{' and backward' if report.backward else ''}"
    say(f"{report.model} on {report.device.get('name', '')}: {inputs}; {mode}")
    say(f"one pass  {_ms(totals.wall_us)}: device busy {_part(totals.busy_us, totals.wall_us)}, "
        f"waiting for the host {_part(totals.host_us, totals.wall_us)}")  # fmt: skip
    say(f"device    {_ms(totals.device_us)}: in the nine operations {_part(totals.recognised_us, totals.device_us)} "
        f"(covered {_part(report.covered_us, totals.device_us)}), "
        f"elsewhere {_part(totals.listed_us, totals.device_us)}, "
        f"unclaimed {_part(totals.unclaimed_us, totals.device_us)}")  # fmt: skip
    say()
    console().print(_table(report.targets[:rows]))
    left = report.targets[rows:]
    if left:
        say(f"and {len(left)} more with {sum(target.share for target in left):.1%} (--rows, --json)")
    say()
    for note in report.notes:
        say(f"note: {note}")
    if any(not variant.floor_is_bound for target in report.targets for variant in target.variants):
        say("~ the data fits the cache, so the floor by memory bandwidth can be beaten")
    _show_plan(report)


def _show_plan(report: ProfileReport) -> None:
    first = [target for target in report.plan if target.recoverable_us > 0][:3] or list(report.plan[:3])
    if not first:
        say("no shipped operation covers a target; capture a module: --capture MODULE=FILE.py")
        return
    for count in range(1, len(first) + 1):
        chosen = first[:count]
        result = report.what_if({target.name: 2.0 for target in chosen})
        say(f"2x on {', '.join(target.name for target in chosen)}: {result.speedup:.3f}x")


def _table(targets: Sequence[Target]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("target", overflow="fold")
    for name in ("calls", "time", "share", "ceiling", "floor", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("sizes, options, places", overflow="fold")
    for target in targets:
        table.add_row(
            text(target.name, "" if target.offered else "dim"), text(target.calls), text(_ms(target.device_us)),
            text(f"{target.share:.1%}"), text(f"{target.ceiling:.2f}x"), text(_floor(target)),
            text(f"{target.gain:.2f}x"), text(one_line(_about(target), limit=150)),
        )  # fmt: skip
    return table


def _floor(target: Target) -> str:
    if target.floor_us is None:
        return "-"
    return ("" if all(variant.floor_is_bound for variant in target.variants) else "~") + _ms(target.floor_us)


def _about(target: Target) -> str:
    first = target.variants[0]
    more = f" and {len(target.variants) - 1} more" if len(target.variants) > 1 else ""
    options = " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                       for name, value in first.options.items())  # fmt: skip
    reason = f" [{target.unlike}]" if target.unlike else ""
    words = [first.label + more, options, first.dtype + reason, _places(target.paths)]
    return "; ".join(word for word in words if word)


def _places(paths: Sequence[str]) -> str:
    """Paths with their numbers as a star, each pattern once."""
    patterns = dict.fromkeys(
        ".".join("*" if part.isdigit() else part for part in path.split(".")) or "the model" for path in paths
    )
    shown = list(patterns)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f} ms" if us < 1e5 else f"{us / 1e3:.1f} ms"


def _part(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"
