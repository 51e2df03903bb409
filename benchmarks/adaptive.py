"""What adaptive generation saves: runs replayed from tables, or from laws like the examples', in three orders.

A sweep is an oracle: its runs are known, and cost what they took. One order is that of ``generate --adaptive``, the
others are random and cheapest first. After each round a process is fitted to the runs so far and asked the questions.
An order has reached the full sweep's error once it is at most a tenth above it in three rounds in a row; for good, once
it is in all that follow.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.apps import app_file as api
from foretell.apps.sweep import build_sweep
from foretell.campaigns.adaptive import list_targets, propose
from foretell.core.app import Scale, Value
from foretell.core.run import Run, RunSpec, State, Usage
from foretell.runtimes.encoding import fit_encoder
from foretell.runtimes.regressors import GaussianProcessRunRegressor
from foretell.runtimes.run_table import build_columns

EXAMPLES = Path(__file__).parent.parent / "examples"
SEEDS, TABLE_SEEDS = range(10, 15), range(2)  # settings were looked at with the laws' seeds below 10
OPTIONS, QUESTIONS = 250, 256  # drawn from each table
NOISE = 0.05
NEAR, LASTING = 1.1, 3
FIRST = 5  # runs before the first error of the orders that are not adaptive

Numbers = Mapping[str, Value]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Runs that could be made and questions that will be asked, all with the seconds they take."""

    options: Mapping[str, Run]
    questions: Sequence[RunSpec]
    answers: Floats

    @property
    def total_s(self) -> float:
        return sum(map(seconds_of, self.options.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the error fell in one order: shares of the sweep's time and errors, round by round."""

    shares: Floats
    errors: Floats
    ended: int | None = None

    @property
    def reached(self) -> float:
        """When the error was near the whole sweep's in some rounds in a row."""
        near = np.append(self._near, [True] * (LASTING - 1))
        lasting = np.lib.stride_tricks.sliding_window_view(near, LASTING).all(axis=1)
        return float(self.shares[np.argmax(lasting)])

    @property
    def reached_for_good(self) -> float:
        """When it was near, and no later round was not."""
        far = np.flatnonzero(~self._near)
        return float(self.shares[far[-1] + 1 if len(far) else 0])

    @property
    def _near(self) -> NDArray[np.bool_]:
        return np.asarray(self.errors <= NEAR * self.errors[-1])


def run() -> dict[str, float | str]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    figures: dict[str, float | str] = {}
    for name, oracles in list_sets():
        courses: dict[str, list[Course]] = {order: [] for order in ORDERS}
        for seed, oracle in enumerate(oracles):
            for order, replay in ORDERS.items():
                courses[order].append(replay(oracle, seed))
        figures |= {f"{name}: {what}": value for what, value in build_figures(courses).items()}
    return figures


def build_figures(courses: Mapping[str, Sequence[Course]]) -> dict[str, float]:
    ours = courses["adaptive"]
    ended = [(course, course.ended) for course in ours if course.ended is not None]
    reached = {
        f"{order}, time to the sweep's error{ending}, % of the sweep's": 100
        * statistics.fmean(getattr(course, figure) for course in several)
        for order, several in courses.items()
        for figure, ending in (("reached", ""), ("reached_for_good", " for good"))
    }
    return {
        "error of the full sweep %": 100 * statistics.fmean(course.errors[-1] for course in ours),
        **reached,
        "adaptive ends by itself at, % of the sweep's time": 100
        * statistics.fmean([*(course.shares[at] for course, at in ended), *[1.0] * (len(ours) - len(ended))]),
        "error there %": 100
        * statistics.fmean(course.errors[-1 if course.ended is None else course.ended] for course in ours),
    }


def replay_adaptive(oracle: Oracle, _seed: int) -> Course:
    made: list[Run] = []
    rounds, ended = [], None
    while True:
        left = [run.spec for key, run in oracle.options.items() if key not in {run.id for run in made}]
        proposal = propose(made, left, oracle.questions)
        if made:
            rounds.append(list(made))
        if proposal.ending and ended is None:
            ended = len(rounds) - 1
        if not proposal.specs:
            return judge(oracle, rounds, ended)
        made += [oracle.options[spec.id] for spec in proposal.specs]


def replay_random(oracle: Oracle, seed: int) -> Course:
    runs = list(oracle.options.values())
    return replay_in_order(oracle, [runs[index] for index in np.random.default_rng(seed).permutation(len(runs))])


def replay_cheapest(oracle: Oracle, _seed: int) -> Course:
    return replay_in_order(oracle, sorted(oracle.options.values(), key=seconds_of))


def replay_in_order(oracle: Oracle, runs: Sequence[Run]) -> Course:
    counts = [FIRST]
    while counts[-1] < len(runs):
        counts.append(min(counts[-1] + max(counts[-1] // 8, 1), len(runs)))
    return judge(oracle, [runs[:count] for count in counts])


ORDERS: dict[str, Callable[[Oracle, int], Course]] = {
    "adaptive": replay_adaptive,
    "random": replay_random,
    "cheapest first": replay_cheapest,
}


def judge(oracle: Oracle, rounds: Sequence[Sequence[Run]], ended: int | None = None) -> Course:
    columns = build_columns([*(run.spec for run in oracle.options.values()), *oracle.questions])
    encoder = fit_encoder(columns)
    asked = encoder.encode(build_columns(oracle.questions), len(oracle.questions))
    shares, errors = [], []
    for runs in rounds:
        kept = sorted(runs, key=lambda run: run.id)  # so that the whole sweep is the same in every order
        X = encoder.encode(build_columns([run.spec for run in kept]), len(kept))
        seconds = np.array([seconds_of(run) for run in kept])
        answers = GaussianProcessRunRegressor().fit(X, seconds).predict(asked)
        shares.append(seconds.sum() / oracle.total_s)
        errors.append(np.mean(np.abs(answers - oracle.answers) / oracle.answers))
    return Course(shares=np.array(shares), errors=np.array(errors), ended=ended)


def seconds_of(run: Run) -> float:
    assert run.usage is not None
    return run.usage.elapsed_s


def list_sets() -> Iterator[tuple[str, Iterator[Oracle]]]:
    """The laws of the examples, and the tables that are there."""
    for name, law in LAWS.items():
        yield f"{name}'s law", (example_oracle(name, law, seed) for seed in SEEDS)
    data = Path(os.environ.get("FORETELL_DATA", "../shared/data"))
    if (data / "harp").is_dir():
        yield "harp dnn", (harp_oracle(data / "harp" / "dnn.csv", seed) for seed in TABLE_SEEDS)
    for code in ("kripke", "amg"):
        if (data / "stampede2_apps").is_dir():
            folder = data / "stampede2_apps"
            yield f"stampede2 {code}", (stampede_oracle(folder, code, seed) for seed in TABLE_SEEDS)


def example_oracle(name: str, law: Callable[[Numbers], float], seed: int) -> Oracle:
    """The example's own sweep and targets, with times by its law and noise as on a shared machine."""
    app = api.load_app(EXAMPLES / name / "foretell.yaml")
    noise = (float(value) for value in np.random.default_rng(seed).lognormal(0, NOISE, 10_000))
    runs = [make_run(spec, law(spec.parameters) * next(noise)) for spec in build_sweep(app)]
    questions = list_targets(app)
    answers = np.array([law(spec.parameters) * next(noise) for spec in questions])
    return Oracle(options={run.id: run for run in runs}, questions=questions, answers=answers)


def fcnet_law(numbers: Numbers) -> float:
    """Start-up makes the images; an epoch multiplies matrices for each, and updates the weights for each batch."""
    features = 3072 if numbers["dataset"] == "cifar" else 784
    samples, hidden, batch_size, epochs = (float(numbers[key]) for key in ("samples", "hidden", "batch_size", "epochs"))
    weights = features * hidden
    epoch = samples * (3e-5 + 7e-11 * weights) + samples / batch_size * (4e-4 + 3e-9 * weights)
    return 0.5 + 2e-8 * samples * features + epochs * epoch


def stencil_law(numbers: Numbers) -> float:
    """Every step visits the grid; some steps write it."""
    size, steps, every = (float(numbers[key]) for key in ("size", "steps", "output_every"))
    return 0.2 + steps * (2e-5 + 1.2e-8 * size**2) + steps / every * (1e-3 + 2e-8 * size**2)


LAWS = {"fcnet": fcnet_law, "stencil": stencil_law}


def harp_oracle(path: Path, seed: int) -> Oracle:
    """Scaled-down runs and three quarters of the full-scale configurations, one run of each; the rest is asked."""
    from benchmarks.runs.harp import read_runs, split

    case = split("dnn", read_runs(path), seed)
    settings = [name for name in case.test if name != "walltime_s"]
    train = case.train.sample(frac=1, random_state=seed).drop_duplicates(settings)
    full = train["run_type"] == "FS"
    few = pd.concat([train[full], train[~full].head(max(OPTIONS - int(full.sum()), 0))])
    scales = [Scale(value) for value in few["run_type"]]
    return table_oracle(few[[*settings, "walltime_s"]], case.test[[*settings, "walltime_s"]], scales)


def stampede_oracle(folder: Path, code: str, seed: int) -> Oracle:
    """Rows of the authors' training file as options, of their test file as questions."""
    train = pd.read_csv(folder / f"{code}_train.csv.gz").sample(OPTIONS, random_state=seed)
    test = pd.read_csv(folder / f"{code}_test.csv.gz").sample(QUESTIONS, random_state=seed)
    return table_oracle(train, test, [Scale.FULL_SCALE] * len(train))


def table_oracle(options: pd.DataFrame, questions: pd.DataFrame, scales: Sequence[Scale]) -> Oracle:
    """The last column is the time."""
    specs = [make_spec(row, scale) for row, scale in zip(records(options), scales, strict=True)]
    runs = [make_run(spec, seconds) for spec, seconds in zip(specs, options.iloc[:, -1], strict=True)]
    return Oracle(
        options={run.id: run for run in runs},
        questions=[make_spec(row, Scale.FULL_SCALE) for row in records(questions)],
        answers=questions.iloc[:, -1].to_numpy(float),
    )


def records(frame: pd.DataFrame) -> list[dict[str, Value]]:
    names = [str(name) for name in frame.columns[:-1]]
    return [dict(zip(names, row, strict=True)) for row in frame.iloc[:, :-1].to_numpy().tolist()]


def make_spec(row: Numbers, scale: Scale) -> RunSpec:
    return RunSpec(app="replayed", parameters=row, scale=scale)


def make_run(spec: RunSpec, seconds: float) -> Run:
    return Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=float(seconds)))
