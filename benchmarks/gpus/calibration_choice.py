"""The kernels that calibrate a device in the benchmark: of those measured, the ones like those of the command."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels import calibration_kernels
from foretell.steps.kernels.kernel_calls import Attention

_MOST_SHARE = 5  # one row of so many at most
_OTHER_KIND = 10.0  # how far one query is from several, as a logarithm

Build = Callable[[pd.DataFrame], Sequence[Any]]


def choose_kernels(rows: pd.DataFrame, device: Device, build: Build) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows nearest to the kernels that ``foretell device calibrate`` measures in two minutes, and the rest.

    At most a fifth of the rows, in the command's order. Sizes decide, never times.
    """
    measured = build(rows)
    places, free = _place(measured), np.ones(len(rows), dtype=bool)
    for wanted in _place(_list_wanted(measured[0], device))[: len(rows) // _MOST_SHARE]:
        distances = np.where(free, ((places - wanted) ** 2).sum(axis=1), np.inf)
        free[distances.argmin()] = False
    return rows[~free], rows[free]


def _list_wanted(like: Any, device: Device) -> list[Any]:
    """What the command measures of this kind and type; of a type that the device emulates, as of its first one."""
    chosen: Sequence[Any] = calibration_kernels.choose_kernels(device)
    own = [each for each in chosen if type(each) is type(like)]
    own = [each for each in own if not getattr(each, "backward", False)]
    same = [each for each in own if each.precision == like.precision]
    return same or [each for each in own if each.precision == own[0].precision]


def _place(calls: Sequence[Any]) -> Floats:
    """Logarithms of sizes, a row for each call."""
    return np.array([_measure_attention(each) if isinstance(each, Attention) else _measure(each) for each in calls])


def _measure(call: Any) -> Floats:
    return np.log([call.rows, call.columns, call.inner, call.many])


def _measure_attention(call: Attention) -> Floats:
    sizes = (call.batch * call.heads, call.queries, call.keys, call.heads / call.key_heads, call.width)
    return np.append(np.log(sizes), _OTHER_KIND * (call.queries == 1))
