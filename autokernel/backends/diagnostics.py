"""What a compiler said, cut down to what a person or an agent can act on.

Each error is one line with the line number in the kernel's own text and that line beside it.
Notes, template back-traces and errors that follow from the first few are left out.
"""

from __future__ import annotations

import re

from autokernel.errors import CompileError

__all__ = ["compile_error"]

_MOST_ERRORS = 5
# g++ and clang: "CPP_SRC:3:5: error: ..."; NVRTC: "CUDA_SRC(3): error: ...".
_LOCATED = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*)(?::(?P<line>\d+)(?::\d+)?:|\((?P<nvline>\d+)\):)"
    r"\s*(?:fatal |catastrophic )?error\s*(?:#\d+(?:-D)?)?:?\s*(?P<text>.*)$"
)
_AT_END = re.compile(r"^At end of source: error.*?: (?P<text>.*)$")
_UNDEFINED = re.compile(r"undefined reference to [`'](.+?)'?$")


def compile_error(name: str, source: str, output: str) -> CompileError:
    """Return the error that tells where ``source`` does not compile.

    Args:
        name: What the text is called, ``CPP_SRC`` or ``CUDA_SRC``.
        source: The text; its first line is line 1.
        output: Everything the compiler or linker printed.
    """
    lines = source.splitlines()
    found: list[str] = []
    for raw in output.splitlines():
        message = _one(name, lines, raw)
        if message is not None and message not in found:
            found.append(message)
    if not found:
        kept = [line.strip()[:300] for line in output.splitlines() if line.strip()][:_MOST_ERRORS]
        return CompileError(f"{name} does not compile: " + ("\n  ".join(kept) or "the compiler gave no reason"))
    count = f"{len(found)} errors" if len(found) > 1 else "1 error"
    shown = found[:_MOST_ERRORS]
    if len(found) > len(shown):
        shown.append(f"and {len(found) - len(shown)} more")
    return CompileError(
        f"{name} does not compile, {count} (line numbers are those of {name}):\n  " + "\n  ".join(shown)
    )


def _one(name: str, lines: list[str], raw: str) -> str | None:
    undefined = _UNDEFINED.search(raw)
    if undefined:
        return f"undefined reference to {undefined.group(1)}"
    at_end = _AT_END.match(raw)
    if at_end:
        return f"at the end: {at_end.group('text')}"
    match = _LOCATED.match(raw)
    if match is None:
        return None
    number = int(match.group("line") or match.group("nvline"))
    text = match.group("text").strip()[:300]
    if match.group("file") == "__nv_name_map":  # NVRTC's list of the kernels that were asked for
        return None if text.startswith("Error in parsing") else f"kernel asked for by name: {text}"
    if match.group("file").strip() != name:
        return f"in {match.group('file').rsplit('/', 1)[-1]}, line {number}: {text}"
    code = lines[number - 1].strip()[:120] if 0 < number <= len(lines) else ""
    return f"line {number}: {text}" + (f"   | {code}" if code else "")
