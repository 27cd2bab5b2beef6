"""How device time is attributed: events of torch's profiler, built as it builds them, with known answers."""

from __future__ import annotations

import pytest
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent

from autokernel.profiling.calls import Call
from autokernel.profiling.timeline import combine, plain_pass, tagged_pass


def host(name, start, end, *kernels):
    event = FunctionEvent(
        id=start, name=name, thread=1, start_us=start, end_us=end, device_type=DeviceType.CPU, use_device="cuda"
    )
    for kernel, duration in kernels:
        event.append_kernel(kernel, 0, duration)
    return event


def device(name, start, end, **options):
    return FunctionEvent(
        id=0, name=name, thread=7, start_us=start, end_us=end, device_type=DeviceType.CUDA, use_device="cuda", **options
    )


def tree(*events):
    made = EventList(events, use_device="cuda")
    made._build_tree()
    return made


def calls(*names):
    return [Call(index=index, name=name, arguments={}, is_view=name == "aten::t") for index, name in enumerate(names)]


def plain_events():
    """Made anew each time: building the tree changes them."""
    return (
        host("aten::linear", 0, 100),
        host("aten::t", 5, 8),
        host("aten::addmm", 10, 90, ("gemm", 40.0), ("splitk_reduce", 5.0)),
        host("aten::softmax", 110, 150),
        host("aten::_softmax", 112, 148, ("softmax_warp", 20.0)),
        device("gemm", 30, 70),
        device("splitk_reduce", 70, 75),
        device("softmax_warp", 120, 140),
    )


def test_a_call_has_the_time_of_the_kernels_that_it_launched():
    read = plain_pass(tree(*plain_events()), calls("aten::t", "aten::addmm", "aten::_softmax"), gpu=True)

    assert read.mismatch == ""
    assert read.call_us == (0.0, 45.0, 20.0)
    assert read.launches == (0, 2, 1)
    assert read.kernels[1] == ("gemm", "splitk_reduce")
    assert (read.device_us, read.unclaimed_us) == (65.0, 0.0)


def test_a_kernel_of_nobody_is_unclaimed():
    strange = device("memcpy", 200, 230)
    read = plain_pass(tree(*plain_events(), strange), calls("aten::addmm", "aten::_softmax"), gpu=True)

    assert (read.device_us, read.unclaimed_us) == (95.0, 30.0)


def test_kernels_that_overlap_keep_the_device_busy_once():
    overlapping = device("copy", 60, 80)
    read = plain_pass(tree(*plain_events(), overlapping), calls("aten::addmm", "aten::_softmax"), gpu=True)

    assert read.device_us == 85.0
    assert read.busy_us == 70.0  # 30 to 80, and 120 to 140


@pytest.mark.parametrize(
    "expected",
    [
        ("aten::_softmax", "aten::addmm"),
        ("aten::addmm", "aten::_softmax", "aten::_softmax"),
        ("aten::mm", "aten::_softmax"),
    ],
)
def test_a_pass_with_other_operators_is_not_used(expected):
    read = plain_pass(tree(*plain_events()), calls(*expected), gpu=True)

    assert read.call_us is None
    assert "does not come where it was recorded" in read.mismatch


def tagged_events():
    return (
        host("autokernel@", 0, 400),
        host("autokernel@layers.0", 10, 300, ("triton_kernel", 12.0), ("autokernel@layers.0", 99.0)),
        host("aten::addmm", 20, 100),
        host("autokernel#0", 30, 90),
        host("aten::addmm", 40, 80, ("gemm", 41.0)),
        device("gemm", 50, 91),
        device("triton_kernel", 100, 112),
        device("autokernel@layers.0", 50, 149, is_user_annotation=True),
    )


def test_the_tagged_pass_names_its_calls_and_finds_kernels_that_python_launched():
    read = tagged_pass(tree(*tagged_events()), calls("aten::addmm"), gpu=True)

    assert read.call_us == (41.0,)
    assert [(kernel.name, kernel.path, kernel.us) for kernel in read.loose] == [("triton_kernel", "layers.0", 12.0)]
    assert read.device_us == 53.0  # the shadow of the module's scope is no kernel


def test_what_the_recorder_looks_at_is_no_part_of_the_model():
    looking = (
        host("autokernel:mask", 110, 140),
        host("aten::eq", 112, 120, ("compare", 3.0)),
        host("aten::all", 121, 130, ("reduce", 4.0)),
        device("compare", 120, 123),
        device("reduce", 125, 129),
    )
    read = tagged_pass(tree(*tagged_events(), *looking), calls("aten::addmm"), gpu=True)

    assert [kernel.name for kernel in read.loose] == ["triton_kernel"]
    assert (read.device_us, read.busy_us) == (53.0, 53.0)


def test_a_call_that_the_profiler_lost_is_said():
    read = tagged_pass(tree(*tagged_events()), calls("aten::addmm", "aten::mm"), gpu=True)
    assert read.mismatch == "the profiler shows 1 of 2 recorded calls"


def test_plain_passes_are_preferred_and_the_tagged_one_serves_where_none_matches():
    recorded = calls("aten::addmm")
    tagged = tagged_pass(tree(*tagged_events()), recorded, gpu=True)
    good = plain_pass(tree(host("aten::addmm", 0, 50, ("gemm", 40.0)), device("gemm", 10, 50)), recorded, gpu=True)
    bad = plain_pass(tree(host("aten::mm", 0, 50, ("gemm", 30.0)), device("gemm", 10, 40)), recorded, gpu=True)

    assert combine(tagged, [good, good], gpu=True).call_us == (40.0,)
    mixed, fallen = combine(tagged, [bad, good], gpu=True), combine(tagged, [bad, bad], gpu=True)
    assert (mixed.call_us, mixed.aligned) == ((40.0,), True)
    assert "only 1 of 2 passes" in mixed.notes[0]
    assert (fallen.call_us, fallen.aligned) == ((41.0,), False)
    assert "the recorded pass was used" in fallen.notes[0]
