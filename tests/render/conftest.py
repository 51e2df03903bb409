"""One campaign in fixed values, from which every report is made."""

import io
import math
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from tests.packages import install_packages

from foretell.campaigns.campaign_plan import CampaignResult, Plan, Progress
from foretell.core.app import App, Domain, Parameter, ParameterType, Scale
from foretell.core.model_card import Judgement, LeaderboardRow, ModelCard, Scores
from foretell.core.prediction import Estimate, Offer, Prediction, Recommendation, Rejection, Request
from foretell.core.render.tables import WordTable
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.core.site import Billing, NodeType, Site
from foretell.core.warning import PredictionWarning, build_warning

GOLDEN = Path(__file__).parents[1] / "golden"
MEGABYTE, GIGABYTE = 2**20, 2**30
NOON = datetime(2025, 3, 14, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def check_golden() -> Callable[[str, str], None]:
    """Compare a text whole with its file; UPDATE_GOLDEN=1 rewrites the file instead."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(scope="session")
def to_text() -> Callable[..., str]:
    """What a renderable looks like on a terminal without colour."""

    def render(renderable: RenderableType, width: int = 100) -> str:
        for usual in (80, 100):
            Console(width=usual, file=io.StringIO()).print(renderable)
        console = Console(width=width, file=io.StringIO(), color_system=None, legacy_windows=False)
        console.print(renderable)
        assert isinstance(console.file, io.StringIO)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"

    return render


@pytest.fixture(autouse=True)
def _no_heading_breaks_inside_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is shown in these tests is also shown at 80 and at 100 columns, see :func:`to_text`."""
    render = WordTable.__rich_console__

    def check(self: WordTable, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from render(self, console, options)
        for column in self.columns:
            longest = max(map(len, str(column.header).split()), default=0)
            if console.width >= 80 and column.width is not None:
                assert column.width >= longest, f"{column.header!r} is broken at {console.width} columns"

    monkeypatch.setattr(WordTable, "__rich_console__", check)


@pytest.fixture(scope="session")
def app() -> App:
    epochs = Parameter(name="epochs", type=ParameterType.INTEGER, target=Domain(low=10, high=400))
    return App(name="fcnet", command=("python3", "train.py", "--epochs", "{epochs}"), parameters=(epochs,))


@pytest.fixture(scope="session")
def runs() -> list[Run]:
    """Twelve that completed, one that failed and one stopped by its limit."""
    completed = [
        build_run(epochs=epochs, hidden=hidden, scale=scale)
        for scale, choices in ((Scale.SCALED_DOWN, (2, 4, 8)), (Scale.FULL_SCALE, (100, 200, 400)))
        for epochs in choices
        for hidden in (128, 256)
    ]
    return [*completed, build_failed_run(), build_stopped_run()]


def build_run(*, epochs: int, hidden: int, scale: Scale = Scale.SCALED_DOWN) -> Run:
    elapsed_s = 0.8 + epochs * hidden * 0.012
    spec = RunSpec(
        app="fcnet",
        parameters={"epochs": epochs, "hidden": hidden, "dataset": "mnist"},
        allocation=Allocation(cores=2),
        scale=scale,
    )
    return Run(
        spec=spec,
        state=State.COMPLETED,
        usage=Usage(
            elapsed_s=elapsed_s,
            cpu_s=1.9 * elapsed_s,
            peak_memory_bytes=(90 + hidden) * MEGABYTE,
            read_bytes=12 * MEGABYTE,
            written_bytes=40_000,
            context_switches=1_234,
        ),
        phases={"startup": 0.8, "epoch": hidden * 0.012},
        machine=Machine(
            hostname="node7",
            cpu_model="Xeon Gold 6148",
            cores=40,
            cpu_mhz=2400.0,
            memory_bytes=180 * GIGABYTE,
            load=0.25,
            extra={"cluster": "pitzer"},
        ),
        exit_code=0,
        started_at=NOON,
        ended_at=NOON + timedelta(seconds=elapsed_s),
    )


def build_failed_run() -> Run:
    spec = RunSpec(app="fcnet", parameters={"epochs": 8, "hidden": 0, "dataset": "mnist"}, scale=Scale.SCALED_DOWN)
    log = "loading [red]data[/red]\nTraceback (most recent call last):\nValueError: hidden must be > 0 & < 10,000"
    return Run(
        spec=spec,
        state=State.FAILED,
        usage=Usage(elapsed_s=0.31),
        exit_code=1,
        reason="it ended with exit code 1",
        log_tail=log,
        started_at=NOON,
    )


def build_stopped_run() -> Run:
    spec = RunSpec(app="fcnet", parameters={"epochs": 900, "hidden": 256, "dataset": "mnist"})
    return Run(spec=spec, state=State.TIMED_OUT, usage=Usage(elapsed_s=1800.0), reason="longer than its limit, 30 min")


@pytest.fixture(scope="session")
def plan(runs: list[Run]) -> Plan:
    return Plan(
        app="fcnet",
        specs=tuple(run.spec for run in runs),
        stored=3,
        failed=1,
        running_elsewhere=2,
        left_out=4,
        at_once=2,
        expected_s=900.0,
        limit_s=7200.0,
        core_h=0.5,
        busy_cores=1.2,
    )


@pytest.fixture(scope="session")
def progress(runs: list[Run]) -> Progress:
    running = (runs[0].spec, runs[1].spec)
    return Progress(total=40, done=12, failed=1, running=running, left_s=190.0, last=runs[2], note="1.2 cores are busy")


@pytest.fixture(scope="session")
def result(runs: list[Run]) -> CampaignResult:
    failures = tuple(run for run in runs if run.state is not State.COMPLETED)
    return CampaignResult(app="fcnet", completed=12, failed=2, recovered=1, elapsed_s=800.0, failures=failures)


@pytest.fixture(scope="session")
def site() -> Site:
    cpu = NodeType(
        name="pitzer-cpu",
        partition="cpu",
        cores=40,
        memory_bytes=178 * GIGABYTE,
        max_nodes=36,
        max_walltime_s=168 * 3600.0,
        billing=Billing.CORE_HOURS,
        price_per_core_h=Decimal("0.003"),
    )
    gpu = replace(cpu, name="ascend-gpu", partition="gpu", gpus=2, gpu_model="A100", price_per_gpu_h=Decimal("0.09"))
    node = replace(cpu, name="vista", billing=Billing.NODE_HOURS, price_per_node_h=Decimal("0.33"))
    free = replace(cpu, name="old", billing=Billing.FREE, max_walltime_s=None)
    return Site(
        name="osc",
        title="Ohio Supercomputer Center",
        scheduler="slurm",
        node_types=(cpu, gpu, node, free),
        as_of="2025-10",
        source="its price list",
        notes="Prices are for academic users.",
    )


@pytest.fixture(scope="session")
def judgement() -> Judgement:
    return build_judgement("elapsed_s", size=400.0)


@pytest.fixture(scope="session")
def card(judgement: Judgement) -> ModelCard:
    return ModelCard(
        app="fcnet",
        policy="mae",
        judgements={
            "elapsed_s": judgement,
            "peak_memory_bytes": build_judgement("peak_memory_bytes", size=250.0 * MEGABYTE),
        },
        uses_custom=False,
        warnings=(build_warning("column-not-used", "column 'again' is not used: it is a copy of 'n'"),),
        columns=("epochs", "hidden"),
    )


def build_judgement(quantity: str, *, size: float) -> Judgement:
    names = ["law SD+100%FS", "boosting SD+100%FS", "linear SD+50%FS adjusted", "tree SD", "neural SD"]
    board = tuple(
        LeaderboardRow(
            candidate=name,
            family=name.split()[0],
            mix=name.split()[1],
            adjustment=1.08 if name.endswith("adjusted") else None,
            scores=build_scores(size * 0.02 * 2**place, percent=3.0 * 2**place),
            fit_s=0.02,
        )
        for place, name in enumerate(names)
    )
    pairs = _build_pairs(size)
    return Judgement(
        quantity=quantity,
        policy="mae",
        winner=names[0],
        why=f"{names[0]}: best by mae; the next family, {names[1]}, is 2.00 times as far off",
        leaderboard=board,
        expected=build_scores(size * 0.03, percent=4.5),
        pairs=pairs,
        rows=60,
        full_scale_rows=len(pairs),
        censored_rows=1,
    )


def build_scores(mae: float, *, percent: float) -> Scores:
    return Scores(
        mae=mae,
        mape=percent,
        median_ape=0.8 * percent,
        upp=48.0,
        ov_mape=1.1 * percent,
        wtm=48 + 0.572 * percent,
        retry_cost=1.4,
    )


def _build_pairs(size: float) -> tuple[tuple[float, float], ...]:
    chance = random.Random(7)
    measured = [size * 10 ** chance.uniform(-0.9, 0.6) for _ in range(40)]
    return tuple((value, value * math.exp(chance.gauss(0, 0.08))) for value in measured)


def build_prediction(
    allocation: Allocation, *, elapsed_s: float = 750.0, warnings: tuple[PredictionWarning, ...] = ()
) -> Prediction:
    basic = Estimate(value=elapsed_s, low=0.85 * elapsed_s, high=1.2 * elapsed_s, level=0.9)
    memory = Estimate(value=346.0 * MEGABYTE, low=330.0 * MEGABYTE, high=370.0 * MEGABYTE, level=0.9)
    walltime_s = math.ceil(1.25 * elapsed_s / 60) * 60
    request = Request(
        walltime_s=walltime_s,
        memory_bytes=400 * MEGABYTE,
        retries_walltime_s=(1.5 * walltime_s, 3.0 * walltime_s),
        retries_memory=(800 * MEGABYTE, 1600 * MEGABYTE),
    )
    return Prediction(
        parameters={"epochs": 240, "hidden": 256, "dataset": "mnist"},
        allocation=allocation,
        elapsed_s=basic,
        peak_memory_bytes=memory,
        request=request,
        basic=basic,
        custom=Estimate(value=1.02 * elapsed_s, low=0.9 * elapsed_s, high=1.15 * elapsed_s, level=0.9),
        warnings=warnings,
    )


@pytest.fixture(scope="session")
def prediction() -> Prediction:
    text = "epochs = 900 lies outside the runs, which had 2 to 400"
    return build_prediction(Allocation(cores=2), warnings=(build_warning("outside-measured-range", text),))


@pytest.fixture(scope="session")
def recommendation() -> Recommendation:
    offers = tuple(
        build_offer(place, cores=cores, gpus=gpus, rate=rate)
        for cores in (1, 2, 4, 8, 16, 40)
        for place, gpus, rate in (("pitzer-cpu", 0, 0.003), ("cardinal-cpu", 0, 0.004), ("ascend-gpu", 1, 0.01))
    )
    ranked = _mark_front(sorted(offers, key=lambda offer: (offer.cost, offer.prediction.elapsed_s.value)))
    return Recommendation(
        app="fcnet",
        offers=ranked,
        picked=ranked[0],
        why="the cheapest of 18 offers that take at most 2 h 00 min",
        rejections=tuple(
            Rejection(
                site="osc",
                allocation=Allocation(cores=cores, partition="debug", node_type="pitzer-debug"),
                reason="about 25 min 00 s; the limit is 10 min 00 s",
            )
            for cores in (1, 2)
        ),
    )


def build_offer(place: str, *, cores: int, gpus: int, rate: float) -> Offer:
    elapsed_s = 3000 / cores**0.8 / (1 + gpus) + 60
    allocation = Allocation(cores=cores, gpus=gpus, partition=place.partition("-")[2], node_type=place)
    prediction = build_prediction(allocation, elapsed_s=elapsed_s)
    hourly = Decimal(str(rate)) * cores + Decimal("0.09") * gpus
    return Offer(
        site="osc",
        prediction=prediction,
        cost=_charge(hourly, elapsed_s),
        cost_at_request=_charge(hourly, prediction.request.walltime_s),
        currency="USD",
        risk=0.004 * cores,
        pareto=False,
        measured=cores <= 8 and not gpus,
    )


def _charge(hourly: Decimal, seconds: float) -> Decimal:
    return (hourly * Decimal(repr(seconds)) / 3600).quantize(Decimal("0.000001"))


def _mark_front(offers: list[Offer]) -> tuple[Offer, ...]:
    quickest, marked = math.inf, []
    for offer in offers:
        pareto = offer.prediction.elapsed_s.value < quickest
        quickest = min(quickest, offer.prediction.elapsed_s.value)
        marked.append(replace(offer, pareto=pareto))
    return tuple(marked)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium, installed where that is possible."""
    install_packages("chromium", purpose="tests that open pages in a browser", until=_find_chromium)
    found = _find_chromium()
    if found is not None:
        return found
    reason = "Chromium is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
