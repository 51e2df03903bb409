"""What a transfer brings: few runs of one app, many of another, and predictions for the first one's other runs.

The source of Spark jobs on one machine type is the same job on another, that of training a neural network is another
network. In the adverse case the times of the source are shuffled among its runs: the transfer must be refused.
Fewer than five runs are too few to fit: their mean is used. Errors are means over the runs asked for, and the
middle one of the builds, so that no single build decides. The data, found by ``FORETELL_DATA``, are those of
``python -m benchmarks runs``.
"""

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import foretell
from benchmarks.runs.c3o import JOBS
from benchmarks.runs.cases import find_folder
from benchmarks.runs.harp import read_runs
from foretell.core.errors import NotEnoughRunsError
from foretell.runtimes.fit import NEED
from foretell.stores import RunStore

TIME, COLUMNS = "took", foretell.Columns(elapsed="took")
SIZES, SEEDS = (3, 6, 10), 2
LEAST_ASKED, MOST_ASKED, MOST_SOURCE = 3, 100, 100
C3O, HARP, ADVERSE = "another machine (c3o)", "another network (harp)", "times at random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The source app with its runs, and the runs of the app to transfer to."""

    part: str
    name: str
    source: pd.DataFrame
    own: pd.DataFrame


def run() -> dict[str, float]:
    pairs = [*_c3o_pairs(find_folder("c3o")), *_harp_pairs(find_folder("harp"))]
    pairs += [_shuffled(pair) for pair in pairs if len(pair.own) >= max(SIZES) + LEAST_ASKED]
    with tempfile.TemporaryDirectory() as folder, foretell.open_store(Path(folder) / "store.db") as store:
        rows = pd.DataFrame([row for pair in pairs for row in _judge(pair, store)])
    figures: dict[str, float] = {}
    for part, size in itertools.product(rows["part"].unique(), SIZES):
        few = rows[(rows["part"] == part) & (rows["size"] == size)]
        name = f"{part}, {size} runs"
        figures |= {
            f"{name}: error {'alone' if size >= NEED else 'of their mean'} %": float(few["alone"].median()),
            f"{name}: error with --transfer %": float(few["with_source"].median()),
            f"{name}: transferred in % of {len(few)} builds": 100 * float(few["transferred"].mean()),
            f"{name}: inside the 90 % interval %": float(few["inside"].mean()),
        }
    return figures


def _c3o_pairs(folder: Path) -> Iterator[Pair]:
    """Of each job the machine type with most runs is the source for the others."""
    for job in JOBS:
        runs = pd.read_csv(folder / f"{job}.tsv", sep="\t").drop(columns=["slots", "memory"])
        runs = runs.rename(columns={"gross_runtime": TIME})
        settings = [name for name in runs if name != TIME]
        runs = runs.groupby(settings)[TIME].median().reset_index()
        source, *others = runs["machine_type"].value_counts().index
        of = {name: runs[runs["machine_type"] == name].drop(columns="machine_type") for name in (source, *others)}
        for other in others:
            yield Pair(part=C3O, name=f"{job}.{source}", source=of[source], own=of[other])


def _harp_pairs(folder: Path) -> Iterator[Pair]:
    runs = read_runs(folder / "dnn.csv").drop(columns="run_type").rename(columns={"walltime_s": TIME})
    runs = runs.groupby([name for name in runs if name != TIME])[TIME].median().reset_index()
    networks = sorted(runs["model_encoding"].unique())
    of = {network: runs[runs["model_encoding"] == network].drop(columns="model_encoding") for network in networks}
    for source, other in zip(networks, networks[1:] + networks[:1], strict=True):
        yield Pair(part=HARP, name=f"dnn.{source}", source=of[source], own=of[other])


def _shuffled(pair: Pair) -> Pair:
    times = np.random.default_rng(0).permutation(pair.source[TIME])
    return Pair(part=ADVERSE, name=f"{pair.name}.random", source=pair.source.assign(**{TIME: times}), own=pair.own)


def _judge(pair: Pair, store: RunStore) -> Iterator[dict[str, object]]:
    if pair.name not in store.app_names():
        source = pair.source.sample(min(len(pair.source), MOST_SOURCE), random_state=0)
        foretell.import_runs(source, app=pair.name, columns=COLUMNS, store=store)
        foretell.build(pair.name, store=store)
    for size in SIZES:
        for seed in range(SEEDS if len(pair.own) >= size + LEAST_ASKED else 0):
            yield {"part": pair.part, "size": size} | _try(pair, size, seed, store)


def _try(pair: Pair, size: int, seed: int, store: RunStore) -> dict[str, object]:
    """The mean error on the runs left over, without and with the source."""
    order = np.random.default_rng(seed).permutation(len(pair.own))
    own, asked = pair.own.iloc[order[:size]], pair.own.iloc[order[size : size + MOST_ASKED]]
    app = f"own.{len(store.app_names())}"
    foretell.import_runs(own, app=app, columns=COLUMNS, store=store)
    alone, _, _ = _build_and_ask(app, own, asked, store, transfer=False)
    with_source, inside, transferred = _build_and_ask(app, own, asked, store, transfer=[pair.name])
    return {"alone": alone, "with_source": with_source, "inside": inside, "transferred": transferred}


def _build_and_ask(
    app: str, own: pd.DataFrame, asked: pd.DataFrame, store: RunStore, *, transfer: bool | list[str]
) -> tuple[float, float, bool]:
    actual = asked[TIME].to_numpy()
    try:
        card = foretell.build(app, store=store, transfer=transfer)
    except NotEnoughRunsError:
        guess = np.exp(np.log(own[TIME]).mean())
        return 100 * float(np.mean(np.abs(guess / actual - 1))), np.nan, False
    estimates = [one.elapsed_s for one in foretell.predict(app, asked.drop(columns=TIME), store=store)]
    values = np.array([one.value for one in estimates])
    inside = [one.low <= truth <= one.high for one, truth in zip(estimates, actual, strict=True)]
    return 100 * float(np.mean(np.abs(values / actual - 1))), 100 * float(np.mean(inside)), card.transfer is not None
