import collections
import dataclasses
import enum
import typing


class Mode(enum.Enum):
    ROWS = "rows"


@dataclasses.dataclass(frozen=True)
class Launch:
    rows: int
    cols: int
    mode: Mode = Mode.ROWS


class Plan(typing.NamedTuple):
    launch: Launch


Key = collections.namedtuple("Key", "rows cols")
PLANS: dict[Key, Plan] = {}


def kernel_fn(x):
    key = Key(x.numel() // max(1, x.shape[-1]), x.shape[-1])
    if key not in PLANS:
        PLANS[key] = Plan(Launch(*key))
    assert PLANS[key].launch.mode is Mode.ROWS
    return right(x)
