"""The manual in sections, and the strategy that chooses among its tiers."""

from __future__ import annotations

import pytest

from autokernel.agents.manual import Manual, architecture, load
from autokernel.agents.strategy import choose
from autokernel.errors import UsageError
from tests.agents.contexts import experiment

TEXT = """# Title
before
## One
common

```cpp
## no heading
#pragma once
```
### Triton
t
### CUDA C++
c
## Two: more
### Other
kept
"""


def test_a_section_holds_the_part_of_one_backend():
    manual = Manual(TEXT)

    assert manual.names == ("One", "Two: more")
    assert (
        manual.section("One", "cuda")
        == "## One\n\ncommon\n\n```cpp\n## no heading\n#pragma once\n```\n\n### CUDA C++\n\nc"
    )
    assert "### Triton" not in manual.section("One", "cpp")
    assert "### Triton" in manual.section("One")


def test_a_part_that_is_for_no_backend_always_stays():
    assert manual_part() == "## Two: more\n\n### Other\n\nkept"


def manual_part() -> str:
    return Manual(TEXT).section("Two: more", "triton")


def test_the_shipped_manual_loses_nothing_when_it_is_divided():
    manual = load()

    assert len(manual.names) > 30
    text = "\n".join(manual.section(name) for name in manual.names)
    for phrase in ("cp.async", "#include <mma.h>", "#pragma unroll", "cuBLAS did 4096"):
        assert phrase in text


def test_an_unknown_section_or_tier_is_an_error():
    with pytest.raises(UsageError, match="no section 'Three'"):
        Manual(TEXT).section("Three")
    with pytest.raises(UsageError, match="no tier 7"):
        load().tier(7)


@pytest.mark.parametrize(
    ("arch", "name"),
    [
        ("sm_80", "Ampere"), ("sm_86", "Ampere"), ("sm_89", "Ada"), ("sm_90", "Hopper"), ("sm_100", "Blackwell"),
        ("sm_120", "Blackwell"), ("sm_70", ""), ("gfx942", "CDNA3"), ("gfx950", "CDNA4"), ("gfx1100", ""),
        ("x86_64 AVX512", "CPU"), ("", ""),
    ],
)  # fmt: skip
def test_architectures_have_the_manuals_names(arch, name):
    assert architecture(arch) == name
    assert not name or load().has(f"Architecture: {name}")


def strategy_after(idle, *, kept=(), bound="memory", patience=3, tier=None):
    """The strategy when the last ``idle`` experiments brought nothing; ``kept`` are kernels before the best."""
    done = [experiment(0, "0")]
    done += [experiment(number, str(number), decision="keep") for number in kept]
    best = experiment(len(done), "best", decision="keep")
    done += [best, *(experiment(best.number + 1 + more, f"after {more}") for more in range(idle))]
    trace = {} if tier is None else {"strategy": {"tier": tier}}
    return choose(done, best, bound=bound, patience=patience, trace=lambda number: trace)


def test_a_strategy_stays_while_it_brings_gains():
    assert (strategy_after(0).name, strategy_after(0).tier) == ("improve", 2)
    assert strategy_after(2).name == "improve"
    assert strategy_after(0, bound="compute").tier == 3
    assert strategy_after(0, tier=6).tier == 6


def test_a_plateau_goes_to_the_next_tier_then_to_an_earlier_kernel_and_on():
    seen = [strategy_after(idle, kept=(1, 2)) for idle in range(3, 30, 3)]

    assert [one.name for one in seen[:6]] == ["next tier", "restart"] * 3
    assert [one.ancestor for one in seen[:6]] == [None, 2, None, 1, None, 0]
    assert len({one.tier for one in seen}) == 6
    assert all(one.name == "next tier" for one in seen[6:])
    assert all("brought no gain" in one.advice for one in seen)


def test_a_strategy_passes_over_a_trace_that_says_nonsense():
    assert strategy_after(0, tier="high").tier == 2
