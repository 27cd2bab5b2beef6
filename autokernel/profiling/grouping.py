"""From matches and times to targets: what is the same work is one group, with its variants.

Matrix products are one group for each size, since each wants a kernel of its own; other operations are
one group for each set of options and dtype, and their sizes are variants.  Calls of no operation are
grouped by the class of the innermost module if nothing in it is an operation (an activation, a convolution),
else by operator and the class of the module that calls it.  The backward pass is grouped by what it is
the backward of; it is listed and never offered.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from autokernel.profiling.calls import Call, Frame, TensorInfo
from autokernel.profiling.cases import case_of, flops_of_call, main_dtype
from autokernel.profiling.graph import Graph, Match, read_bytes
from autokernel.profiling.targets import Layout, Site, Target, Variant
from autokernel.profiling.timeline import Timeline

__all__ = ["group"]


@dataclasses.dataclass
class _Member:
    """One occurrence of a group."""

    indices: tuple[int, ...]
    frame: Frame
    us: float
    match: Match | None = None


def group(calls: Sequence[Call], graph: Graph, matches: Sequence[Match], timeline: Timeline) -> list[Target]:
    """All targets of one pass, without floors, most device time first."""
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    owner: dict[int, Match] = {}
    for match in matches:
        owner |= dict.fromkeys(match.calls, match)
        groups[_key_of_match(match)].append(_member(calls, timeline, match.calls, match))
    wholes = _wholes(calls, owner)
    for frame, indices in wholes.items():
        groups["module", frame.kind].append(_member(calls, timeline, tuple(indices), None))
    in_whole = {index for indices in wholes.values() for index in indices}
    for call in calls:
        idle = call.is_view and timeline.call_us[call.index] == 0
        if call.index in owner or call.index in in_whole or idle:
            continue
        groups[_key_of_call(call, calls, owner)].append(_member(calls, timeline, (call.index,), None))
    targets = [_target(key, members, calls, graph, timeline) for key, members in groups.items()]
    targets += _loose_targets(timeline)
    return _named(sorted(targets, key=lambda target: -target.device_us))


def _wholes(calls: Sequence[Call], owner: dict[int, Match]) -> dict[Frame, list[int]]:
    """The calls of modules, below the root, that hold no operation and no other module."""
    within: dict[Frame, list[int]] = defaultdict(list)
    mixed: set[Frame] = set()
    for call in calls:
        if call.phase != "forward" or not call.frames:
            continue
        mixed.update(call.frames[:-1])
        if call.index in owner:
            mixed.add(call.frames[-1])
        else:
            within[call.frames[-1]].append(call.index)
    chosen = {frame: indices for frame, indices in within.items() if frame not in mixed and frame.path}
    return {frame: idx for frame, idx in chosen.items() if not all(calls[index].is_view for index in idx)}


def _key_of_match(match: Match) -> tuple[Any, ...]:
    sizes, unlike = case_of(match)
    own = tuple((sizes or {}).items()) if match.kind == "matmul" else ()
    options = tuple(sorted((name, repr(value)) for name, value in match.options.items()))
    return ("operation", match.kind, main_dtype(match), options, own, unlike)


def _key_of_call(call: Call, calls: Sequence[Call], owner: dict[int, Match]) -> tuple[Any, ...]:
    kind = call.frames[-1].kind if call.frames else ""
    if call.phase == "forward":
        return ("operator", call.short, kind)
    if call.forward is None:
        return ("backward", call.short, kind)
    match = owner.get(call.forward)
    return ("backward", match.kind if match else calls[call.forward].short, "" if match else kind)


def _member(calls: Sequence[Call], timeline: Timeline, indices: tuple[int, ...], match: Match | None) -> _Member:
    frames = [calls[index].frames for index in indices]
    shared = Frame("", "", -1)
    for level in zip(*frames, strict=False):
        if any(frame != level[0] for frame in level):
            break
        shared = level[0]
    return _Member(indices, shared, sum(timeline.call_us[index] for index in indices), match)


def _target(
    key: tuple[Any, ...], members: list[_Member], calls: Sequence[Call], graph: Graph, timeline: Timeline
) -> Target:
    family, subject = key[0], key[1]
    variants: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    for member in members:
        variants[_variant_key(member, calls)].append(member)
    indices = [index for member in members for index in member.indices]
    made = [_variant(chosen, calls, graph) for chosen in variants.values()]
    operators = {calls[index].short for index in indices}
    return Target(
        name="",
        operation=subject if family == "operation" else "",
        title=_title(key),
        phase="backward" if family == "backward" else "forward",
        calls=len(members),
        launches=sum(timeline.launches[index] for index in indices),
        device_us=sum(member.us for member in members),
        variants=tuple(sorted(made, key=lambda variant: -variant.device_us)),
        operators=tuple(sorted(operators)),
        kernels=tuple(sorted({name for index in indices for name in _kernels(timeline, index)})),
    )


def _title(key: tuple[Any, ...]) -> str:
    family, subject = key[0], key[1]
    if family in ("operation", "module"):
        return str(subject)
    within = f" in {key[2]}" if key[2] else ""
    return f"backward of {subject}{within}" if family == "backward" else f"{subject}{within}"


def _kernels(timeline: Timeline, index: int) -> tuple[str, ...]:
    return timeline.kernels[index] if timeline.kernels else ()


def _variant_key(member: _Member, calls: Sequence[Call]) -> tuple[Any, ...]:
    inputs = _inputs(member, calls)
    options = {} if member.match is None else {**member.match.options, **member.match.details}
    layouts = tuple((name, one.shape, one.stride, one.dtype) for name, one in inputs.items())
    return (layouts, tuple(sorted((name, repr(value)) for name, value in options.items())))


def _inputs(member: _Member, calls: Sequence[Call]) -> dict[str, TensorInfo]:
    if member.match is not None:
        return member.match.inputs
    made = {output.value for index in member.indices for output in calls[index].outputs}
    found: dict[str, TensorInfo] = {}
    for index in member.indices:
        for name, value in calls[index].arguments.items():
            items = value if isinstance(value, tuple) else (value,)
            for item in items:
                if isinstance(item, TensorInfo) and item.value not in made:
                    made.add(item.value)
                    found[name if name not in found else f"{name}_{len(found)}"] = item
    return found


def _variant(members: list[_Member], calls: Sequence[Call], graph: Graph) -> Variant:
    first = members[0]
    sizes, unlike = (None, "") if first.match is None else case_of(first.match)
    inputs = _inputs(first, calls)
    forward = all(calls[index].phase == "forward" for index in first.indices)
    return Variant(
        shape=sizes,
        dtype=main_dtype(first.match) if first.match else next((one.dtype for one in inputs.values()), ""),
        options={} if first.match is None else dict(first.match.options),
        details={} if first.match is None else dict(first.match.details),
        unlike=unlike,
        inputs={name: Layout(one.shape, one.stride, one.dtype) for name, one in inputs.items()},
        calls=len(members),
        device_us=sum(member.us for member in members),
        sites=tuple(_sites(members, calls)),
        flops=sum(flops_of_call(calls[i].short, calls[i].inputs, calls[i].outputs) for i in first.indices),
        bytes_moved=graph.outer_bytes(first.indices) if forward else _own_bytes(calls[first.indices[0]]),
    )


def _own_bytes(call: Call) -> float:
    read = {one.value: read_bytes(call, one) for one in call.inputs}
    written = {one.value: float(one.stored_bytes) for one in call.outputs}
    return sum({**read, **written}.values())


def _sites(members: Iterable[_Member], calls: Sequence[Call]) -> Iterable[Site]:
    count: dict[tuple[Any, ...], int] = defaultdict(int)
    for member in members:
        parameters = {name: one.parameter for name, one in _inputs(member, calls).items() if one.parameter}
        count[member.frame.path, member.frame.kind, tuple(parameters.items())] += 1
    for (path, kind, parameters), times in count.items():
        yield Site(path=path, module=kind, calls=times, parameters=dict(parameters))


def _loose_targets(timeline: Timeline) -> list[Target]:
    """Kernels that no operator launched, by name."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for kernel in timeline.loose:
        found[kernel.name, kernel.phase].append(kernel)
    targets = []
    for (name, phase), kernels in found.items():
        us = sum(kernel.us for kernel in kernels)
        sites = tuple(Site(path=path, module="", calls=1) for path in sorted({kernel.path for kernel in kernels}))
        variant = Variant(calls=len(kernels), device_us=us, sites=sites, unlike="a kernel that Python launched")
        targets.append(
            Target(
                name="", title=f"kernel {name}", phase=phase, calls=len(kernels), launches=len(kernels), device_us=us,
                variants=(variant,), kernels=(name,),
            )
        )  # fmt: skip
    return targets


def _named(targets: Sequence[Target]) -> list[Target]:
    """Give each target a name of its own that a command line can take, the same in the next profile."""
    used: dict[str, int] = defaultdict(int)
    result = []
    for target in targets:
        name = _name(target)
        used[name] += 1
        result.append(dataclasses.replace(target, name=name if used[name] == 1 else f"{name}.{used[name]}"))
    return result


def _name(target: Target) -> str:
    if target.operation == "matmul" and target.variants[0].shape:
        return "matmul-" + "x".join(str(size) for size in target.variants[0].shape.values())
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in target.title)[:60].split()
    return "-".join(word for word in words if word not in ("in", "of"))
