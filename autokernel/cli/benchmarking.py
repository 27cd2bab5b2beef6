"""The command ``bench-suite``: our kernels against every alternative, over many sizes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autokernel import backends, ops
from autokernel.cli.arguments import DTYPES, DeviceOption, ShapeOption, kernel_type, one_of, parse_shapes, read_kernel
from autokernel.cli.console import console, say, text
from autokernel.errors import UsageError
from autokernel.plaintext import one_line

if TYPE_CHECKING:
    from autokernel.hardware import Device
    from autokernel.suite import Configuration, Outcome, SuiteSettings

__all__ = ["register"]

_SHOWN = ("pytorch", "composed", "narrow", "compile", "liger", "quack", "cuda")


def register(app: typer.Typer) -> None:
    """Add the command of this module to the application."""
    app.command("bench-suite")(bench_suite)


def bench_suite(
    op: Annotated[list[str] | None, typer.Option(help="Only this operation; repeatable.")] = None,
    config: ShapeOption = None,
    dtype: Annotated[
        list[str] | None, typer.Option(callback=one_of(*DTYPES), help="Only this dtype; repeatable.")
    ] = None,
    device: DeviceOption = "auto",
    backend: Annotated[
        str | None, typer.Option(callback=one_of(*backends.NAMES), help="Only our kernels of this backend.")
    ] = None,
    kernel: Annotated[list[Path] | None, typer.Option(help="Time this kernel file as ours; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="Longest sampling of a configuration.")] = 0.5,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Begin no configuration after so long.")] = None,
    verify: Annotated[
        str,
        typer.Option(
            callback=one_of("brief", "full", "values"),
            help="brief, full (five stages), or values (of each configuration).",
        ),
    ] = "brief",
    no_verify: Annotated[bool, typer.Option("--no-verify", help="The same as --verify values.")] = False,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Leave torch.compile out.")] = False,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Leave other libraries out.")] = False,
    compile_mode: Annotated[
        str, typer.Option(help="torch.compile's: default or max-autotune-no-cudagraphs.")
    ] = "max-autotune-no-cudagraphs",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything, after each configuration.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the speedups, to .html, .svg or .png.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Show the configurations and time nothing.")] = False,
) -> None:
    """Time our kernels beside PyTorch, torch.compile and installed libraries, over many sizes.

    Exit 1 if one of our kernels was rejected; a configuration that cannot be timed says so, and the rest go on.
    """
    for name in op or ():
        ops.check(name)

    from autokernel.suite import SuiteSettings

    texts = _kernels(kernel or [])
    settings = SuiteSettings(
        seconds=seconds, verify="values" if no_verify else verify, compiled=not no_compile, compile_mode=compile_mode,
        libraries=not no_peers, kernels=texts, backend=backend,
    )  # fmt: skip
    from autokernel.hardware import detect

    found = detect(device)
    chosen = _chosen(found.is_gpu, op or list(texts), dtype or [], config)
    if only_list:
        for one in chosen:
            say(one.label)
        return
    outcomes = _run(chosen, found, settings, minutes, json_file)
    _show(outcomes)
    if figure is not None:
        _draw(outcomes, found, figure)
    raise typer.Exit(1 if any(one.status == "rejected" for one in outcomes) else 0)


def _kernels(files: list[Path]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for file in files:
        source = read_kernel(file)
        operation = kernel_type(source)
        if operation is None:
            raise UsageError(f"{str(file)!r} states no KERNEL_TYPE, so what it should compute is unknown")
        if operation in texts:
            raise UsageError(f"two kernel files are for {operation}; give one of them")
        texts[operation] = source
    return texts


def _chosen(gpu: bool, operations: list[str], dtypes: list[str], config: list[str] | None) -> list[Configuration]:
    from autokernel.suite import select

    chosen = select(gpu=gpu, operations=operations, dtypes=dtypes, shapes=parse_shapes(config) or ())
    if not chosen:
        raise UsageError(f"no configuration is left: {', '.join(operations)} in {', '.join(dtypes) or 'any dtype'}")
    return chosen


def _run(
    chosen: list[Configuration], device: Device, settings: SuiteSettings, minutes: float | None, file: Path | None
) -> list[Outcome]:
    """Time them; print a line for each as soon as it is there, and keep the file up to date."""
    from autokernel.suite import bench, document

    outcomes: list[Outcome] = []
    begin = time.monotonic()
    for outcome in bench(chosen, device=device.torch_name, settings=settings, progress=_teller()):
        outcomes.append(outcome)
        say(_line(outcome))
        sys.stdout.flush()
        if file is not None:
            file.write_text(json.dumps(document(outcomes, device), indent=1))
        left = len(chosen) - len(outcomes)
        if minutes is not None and time.monotonic() - begin > 60 * minutes and left:
            say(f"{left} configurations were not begun: {minutes:g} minutes are over")
            break
    return outcomes


def _teller() -> Callable[[str], None]:
    """Show what is being done: on a terminal, in one line that is written over."""
    if not sys.stderr.isatty():
        return lambda _text: None
    return lambda words: print(f"\r\033[K{one_line(words, limit=100)}\r", end="", file=sys.stderr, flush=True)


def _line(outcome: Outcome) -> str:
    head = f"{outcome.operation:<17}{outcome.label:<44}"
    if outcome.status != "measured":
        return f"{head}{outcome.status}: {one_line(outcome.reason, limit=300)}"
    others = "  ".join(
        f"{name} {outcome.latency_us[name]:.1f} ({ratio.value:.2f}x{'*' if name in outcome.inaccurate else ''})"
        for name, ratio in outcome.speedups.items()
    )
    share = "" if outcome.share_of_floor is None else f"  {outcome.share_of_floor:.0%} of floor"
    gone = f"  without {', '.join(outcome.absent)}" if outcome.absent else ""
    return f"{head}{outcome.latency_us['candidate']:9.1f} us{share}  {others}{gone}  [{outcome.seconds:.1f} s]"


def _show(outcomes: list[Outcome]) -> None:
    from rich.table import Table

    shown = [name for name in _SHOWN if any(name in one.latency_us for one in outcomes)]
    table = Table(box=None, pad_edge=False)
    table.add_column("configuration", overflow="fold")
    for title in ("ours", "called", "floor", "share", *shown, "over the best"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in outcomes:
        label = text(f"{one.operation} {one.label}")
        if one.status != "measured":
            table.add_row(label, text(one.status))
            continue
        best = one.best_alternative
        over = "" if best is None else f"{best[1].value:.2f}x"
        times = [_time(one.latency_us.get(name), name in one.inaccurate) for name in shown]
        share = "" if one.share_of_floor is None else f"{one.share_of_floor:.0%}"
        own = (_time(one.latency_us["candidate"]), _time(one.call_us["candidate"]), _time(one.floor_us), share)
        table.add_row(label, *(text(cell) for cell in (*own, *times, over)))
    say()
    console().print(table)
    say("Microseconds: medians of GPU time (wall time on a CPU); called: as a caller sees it, launches included.")
    for words in dict.fromkeys(_remarks(outcomes)):
        say(words)


def _remarks(outcomes: list[Outcome]) -> list[str]:
    remarks = []
    for one in outcomes:
        where = f"{one.operation} {one.label}"
        if one.status != "measured":
            remarks.append(f"{where}: {one.status}: {one_line(one.reason, limit=400)}")
        remarks += [f"* {where}: {name}: {one_line(why, limit=200)}" for name, why in one.inaccurate.items()]
        for name, why in one.absent.items():
            everywhere = "is not installed" in why
            remarks.append(f"{name}: {why}" if everywhere else f"{where}: {name}: {one_line(why, limit=200)}")
        remarks += [one_line(note, limit=200) for note in one.notes]
    return remarks


def _time(value: float | None, inaccurate: bool = False) -> str:
    return "" if value is None else f"{value:.1f}{'*' if inaccurate else ''}"


def _draw(outcomes: list[Outcome], device: Device, file: Path) -> None:
    from autokernel.suite.figure import speedups

    drawing = speedups(outcomes, title=device.name)
    if file.suffix == ".html":
        drawing.write_html(file, include_plotlyjs=True)
    elif file.suffix in (".svg", ".png"):
        drawing.write_image(file)
    else:
        raise UsageError(f"cannot draw to {str(file)!r}; use a name that ends in .html, .svg or .png")
    say(f"figure: {file}")
