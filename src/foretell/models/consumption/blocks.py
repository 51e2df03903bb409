"""Numbers of one meaning that are learned together: one for each workload, cluster or pair, none far from a belief."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from foretell.entities.workload import Floats
from foretell.models.consumption.placed import Rows

Params = Mapping[str, Floats]

_SMALL = 1e-6


@dataclass(frozen=True, slots=True)
class Block:
    """Parameters of one meaning, one for each workload, cluster or pair of them, and what is believed beforehand."""

    level: str
    mean: float
    sd: float


Blocks = Mapping[str, Block]


def get_column(name: str, params: Params, rows: Rows, blocks: Blocks) -> Floats:
    """The number of each row."""
    return params[name][rows.levels[blocks[name].level]]


def soften(values: Floats) -> Floats:
    """So that squares of what is far off grow as its amount."""
    return np.asarray(np.sign(values) * np.sqrt(2 * (np.sqrt(1 + values**2) - 1)))


def _slope_softened(values: Floats) -> Floats:
    rooted = np.sqrt(1 + values**2)
    return np.asarray(np.sqrt((rooted + 1) / 2) / rooted)


def fit_blocks(
    blocks: Mapping[str, Block],
    sizes: Mapping[str, int],
    rows: Rows,
    miss: Callable[[Params], Floats],
    *,
    begin: Mapping[str, Floats] | None = None,
) -> Params:
    """The parameters that miss least, none far from what is believed of it; each has one more, for names never seen.

    ``miss`` has one column for each row. A row depends on one parameter of a block only, so that one step of a whole
    block tells the slopes of all its parameters. The search begins at what is believed, or at ``begin``.
    """
    starts = dict(
        zip(blocks, np.cumsum([0, *(sizes[block.level] for block in blocks.values())]).tolist(), strict=False)
    )
    means = np.concatenate([np.full(sizes[block.level], block.mean) for block in blocks.values()])
    doubts = np.concatenate([np.full(sizes[block.level], block.sd) for block in blocks.values()])

    def unpack(flat: Floats) -> dict[str, Floats]:
        parts = {name: flat[starts[name] : starts[name] + sizes[block.level]] for name, block in blocks.items()}
        return {name: np.append(part, _unseen(blocks[name], part)) for name, part in parts.items()}

    def weigh(flat: Floats) -> Floats:
        return np.concatenate([miss(unpack(flat)).ravel(), soften((flat - means) / doubts)])

    def slope(flat: Floats) -> Floats:
        now = miss(unpack(flat))
        kinds, count = now.shape
        slopes = np.zeros((now.size + len(flat), len(flat)))
        for name, block in blocks.items():
            moved = flat.copy()
            moved[starts[name] : starts[name] + sizes[block.level]] += _SMALL
            change = (miss(unpack(moved)) - now) / _SMALL
            for kind in range(kinds):
                slopes[kind * count + np.arange(count), starts[name] + rows.levels[block.level]] = change[kind]
        slopes[now.size + np.arange(len(flat)), np.arange(len(flat))] = (
            _slope_softened((flat - means) / doubts) / doubts
        )
        return slopes

    first = means.copy()
    for name, values in (begin or {}).items():
        first[starts[name] : starts[name] + sizes[blocks[name].level]] = values
    return unpack(least_squares(weigh, first, jac=slope, max_nfev=80).x)


def _unseen(block: Block, part: Floats) -> float:
    return float(part[0]) if block.level == "all" else block.mean
