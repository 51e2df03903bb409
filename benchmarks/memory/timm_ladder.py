"""The largest training batch of timm's models that fitted an RTX 3090 with 24 GB.

timm's ``benchmark.py`` tries 512 examples and goes down half a power of two after each failure, so that its results say
what fitted and what did not: https://github.com/huggingface/pytorch-image-models/tree/main/results. Mixed precision,
SGD with momentum, PyTorch 1.12: gradients are kept and set to zero, and attention keeps its weights.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.gpus.results import DATA
from benchmarks.memory.models import find_family, is_known, read_timm
from benchmarks.memory.overhead_fits import split_families
from benchmarks.memory.results import Result
from benchmarks.memory.timm_peaks import TITLES
from benchmarks.memory.training_loops import keep_gradients
from foretell.core.devices import get_device
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.batch_sizes import BatchTraces
from foretell.memory.forecast import forecast
from foretell.memory.overheads import find_workspaces
from foretell.memory.usage import measure_usage

LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
MODELS = 190  # drawn at random: to read all takes hours
_COLUMNS = ["model", "train_batch_size", "train_img_size", "param_count"]
_SEED = 0
_FILE = "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
_DEVICE = "RTX3090"
_GIB = 2**30
_AVAILABLE = tuple(np.arange(20.0, 24.01, 0.25).tolist())  # GiB of 24 for the allocator, tried
_ROUNDING = 0.0075  # of millions of parameters
_WANTED = {"right step": 80.0, "within one step": 97.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderCase:
    """The step of the ladder that fitted; those that fit by the replay with each available memory, and as it ships."""

    model: str
    family: str
    step: int
    predicted: tuple[int, ...]  # for each of _AVAILABLE
    shipped: int  # by what ships
    group: str


def judge_ladder() -> list[Result]:
    """Every model with the available memory that suits other families best; and as it ships, without this GPU."""
    cases = list_cases()
    steps = np.array([each.step for each in cases])
    table = np.array([each.predicted for each in cases])
    predicted = np.empty(len(cases), dtype=np.int64)
    chosen = []
    for held in split_families([each.family for each in cases]):
        best = _choose(table[~held], steps[~held])
        chosen.append(_AVAILABLE[best])
        predicted[held] = table[held, best]
    note = f"{min(chosen):g} to {max(chosen):g} GiB available to the allocator"
    found = [_judge("all, of other families", steps, predicted, wanted=_WANTED, note=note)]
    groups = np.array([each.group for each in cases])
    for name, title in TITLES.items():
        found.append(_judge(title, steps[groups == name], predicted[groups == name]))
    shipped = np.array([each.shipped for each in cases])
    note = "need and usable memory as 'foretell memory' has them"
    return [*found, _judge("all, nothing of this GPU known", steps, shipped, note=note)]


def _choose(table: np.ndarray, steps: np.ndarray) -> int:
    """The available memory with most right steps; of equals, with the fewest steps too far."""
    misses = np.abs(table - steps[:, None])
    return int(np.argmax((misses == 0).mean(axis=0) - 1e-3 * misses.mean(axis=0)))


def _judge(
    group: str, steps: np.ndarray, predicted: np.ndarray, *, wanted: dict[str, float] | None = None, note: str = ""
) -> Result:
    misses = np.abs(predicted - steps)
    figures = {
        "right step": float(100 * (misses == 0).mean()),
        "within one step": float(100 * (misses <= 1).mean()),
        "would not fit": float(100 * (predicted < steps).mean()),
    }
    return Result(
        what="largest batch in 24 GB, AMP",
        group=group,
        cases=len(steps),
        figures=figures,
        wanted=wanted or {},
        note=note,
    )


@cache
def list_cases() -> tuple[LadderCase, ...]:
    """Models whose code is still that of the measured one, by its number of parameters."""
    rows = pd.read_csv(DATA / "timm_benchmarks" / _FILE).drop_duplicates("model")
    drawn = rows.sample(frac=1, random_state=_SEED).head(MODELS)
    usable = get_device(_DEVICE).usable_memory_bytes
    found = []
    for name, batch, size, millions in drawn[_COLUMNS].itertuples(index=False):
        traces = read_timm(name, size=int(size), precision="bf16", fused=False) if is_known(name) else None
        if traces is None or abs(traces.large.parameters / 1e6 - millions) > _ROUNDING:
            continue
        case = LadderCase(
            model=name,
            family=find_family(name),
            step=LADDER.index(int(batch)),
            predicted=find_steps(traces),
            shipped=next(step for step in range(len(LADDER) + 1) if _needs_at_most(traces, step, usable)),
            group=find_workspaces(traces.large).group,
        )
        found.append(case)
    return tuple(found)


def find_steps(traces: BatchTraces) -> tuple[int, ...]:
    """The first step of the ladder that fits, with each available memory: the less there is, the later."""
    found: list[int] = []
    step = 0
    for available in reversed(_AVAILABLE):
        while step < len(LADDER) and not fits(traces, LADDER[step], available):
            step += 1
        found.append(step)
    return tuple(reversed(found))


def fits(traces: BatchTraces, batch: int, available: float) -> bool:
    """Whether the replay of a step does not run out of so many GiB."""
    trace = keep_gradients(traces.resize(batch))
    settings = AllocatorSettings(capacity=int(available * _GIB))
    return measure_usage(trace, settings=settings).out_of_memory is None


def _needs_at_most(traces: BatchTraces, step: int, usable_bytes: int) -> bool:
    """Whether the batch of a step fits by what ships; that beyond the last step does."""
    if step == len(LADDER):
        return True
    usage = measure_usage(keep_gradients(traces.resize(LADDER[step])))
    return forecast(usage, get_device(_DEVICE), level=0.9).needed.value <= usable_bytes
