"""The README of an exported kernel: what it is, where it runs, and the evidence for both.

Every figure is one of evidence.json, which the run recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autokernel.export.selection import KeptKernel
from autokernel.plaintext import one_line

__all__ = ["card"]

_ADMITS = {
    "verified": "sizes, dtypes and options are exactly those of a case that passed verification or was timed",
    "range": "dtypes and options are those of a case that passed, and each size lies between two that passed",
}
_METHODS = {"graph": "CUDA graph replay", "events": "device events", "wall": "wall clock"}


def card(kept: KeptKernel, facts: Mapping[str, Any], title: str, usage: str, after: str = "") -> str:
    """The text of the README.

    Args:
        kept: The kernel.
        facts: From `facts_of`.
        title: The project's name.
        usage: How it is installed and called, in Markdown.
        after: Further sections.
    """
    sections = [
        f"# {title}\n\n{_about(kept)}",
        f"## Use\n\n{usage}",
        f"## Where the kernel runs\n\n{_guard(facts)}",
        f"## Verification\n\n{_verification(kept, facts)}",
        f"## Time\n\n{_timing(facts)}",
        f"## Where it is from\n\n{_provenance(kept, facts)}",
        after,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _about(kept: KeptKernel) -> str:
    language = {"triton": "Triton", "cuda": "CUDA C++", "cpp": "C++"}[kept.backend]
    text = f"`{kept.spec.name}` as a {language} kernel"
    if kept.spec.description:
        text += f": `{one_line(kept.spec.description, limit=500)}`"
    done = "Verified" if kept.measurement is None or kept.interpreted else "Verified and timed"
    return f"{text}.\n\n{done} by AutoKernel on {one_line(kept.verdict.device)}."


def _guard(facts: Mapping[str, Any]) -> str:
    place = "on the CPU" if facts["device"]["kind"] == "cpu" else f"on one {facts['device']['name']}"
    lines = [
        f"- all tensors are plain ones {place};",
        f"- {_ADMITS[facts['admit']]};",
        "- no gradient is required (the kernel has no backward), and there is no autocast, transform or trace.",
    ]
    if facts["interpreted"]:
        lines.insert(
            0, "- `TRITON_INTERPRET=1` is set: this kernel was verified in Triton's interpreter only, on no GPU;"
        )
    rows = [facts["inputs"][index] for index in facts["rows"]]
    notes = [f"Leading dimensions of `{', '.join(rows)}` are counted as one number of rows."] if rows else []
    if facts["numbers"]:
        ranges = [f"`{name}` from {low:g} to {high:g}" for name, (low, high) in sorted(facts["numbers"].items())]
        notes.append(f"Options that are numbers: {', '.join(ranges)}.")
    notes.append(f"Memory layouts: {', '.join(facts['layouts'])}; a tensor that lies otherwise is copied first.")
    notes.append("`report()` counts calls and reasons.")
    return "Any other call runs PyTorch. The kernel runs if\n\n" + "\n".join(lines) + "\n\n" + " ".join(notes)


def _verification(kept: KeptKernel, facts: Mapping[str, Any]) -> str:
    rows = [(one["stage"], one["status"], one["passed"], len(one["not_tested"])) for one in facts["verification"]]
    text = _table(("stage", "outcome", "cases passed", "not tested"), rows)
    cases = sorted({(case.dtype, _words(case.shape), _words(dict(case.options))) for case in kept.passed})
    text += "\n\nEach case was compared with the operation in float64, within a bound from error analysis.\n\n"
    text += _folded("Sizes, dtypes and options that passed", _table(("dtype", "sizes", "options"), cases))
    untested = [(one["case"], one["why"]) for stage in facts["verification"] for one in stage["not_tested"]]
    if untested:
        text += "\n\n" + _folded("What could not be tested", _table(("case", "why"), untested))
    return text


def _timing(facts: Mapping[str, Any]) -> str:
    if not facts["timing"]:
        return "Not timed" + (": the interpreter's time is no speed." if facts["interpreted"] else ".")
    rows = []
    for case in facts["timing"]:
        peak = case["fraction_of_peak"]
        rows.append(
            (
                case["case"],
                _METHODS.get(case["method"], case["method"]),
                *[_time(case["times_us"].get(name)) for name in ("candidate", "pytorch", "compile")],
                _speedup(case["speedups"].get("pytorch")),
                "" if peak is None else f"{100 * peak:.0f} %",
            )
        )
    heads = (
        "case",
        "method",
        "kernel (µs)",
        "PyTorch (µs)",
        "torch.compile (µs)",
        "speedup over PyTorch",
        "of the floor",
    )
    return _table(heads, rows) + (
        "\n\nMedians with the quantiles 0.2 and 0.8; speedups with their 95 % interval; all contestants timed in turn, "
        f"in one process, on {facts['device']['description']}."
    )


def _provenance(kept: KeptKernel, facts: Mapping[str, Any]) -> str:
    words = {"sha256": "SHA-256 of the text", "harness": "hash of the judging code", "decided": "decided (UTC)"}
    rows = [(words.get(name, name), f"`{one_line(value)}`") for name, value in facts["provenance"].items()]
    spec = "" if kept.run.target.reference == kept.spec.name else " --spec FILE_WITH_ITS_SPEC"
    return _table(("", ""), rows) + (
        "\n\n`verified/kernel.py` is the text that was judged, byte for byte. To judge it again:\n\n"
        f"```\nautokernel verify verified/kernel.py{spec}\n```"
    )


def _time(quantiles: Sequence[float] | None) -> str:
    return "" if quantiles is None else "{:.2f} ({:.2f} to {:.2f})".format(*quantiles)


def _speedup(ratio: Sequence[float] | None) -> str:
    return "" if ratio is None else "{:.3f} ({:.3f} to {:.3f})".format(*ratio)


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _table(heads: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return one_line(value, limit=300).replace("|", "\\|").replace("<", "&lt;")
