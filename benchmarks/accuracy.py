"""The example, as a user would judge it: 20 full-scale configurations that no run ever had, predicted, then really run.

The configurations are drawn (fixed seed) from the target ranges of the app file, so most lie between the values of the
full-scale sweep. Nothing is learned from them before all of them are predicted.
"""

import random
import shutil
import statistics
import tempfile
from pathlib import Path

from foretell import stores as foretell_stores
from foretell.apps import app_file as apps_spec
from foretell.campaigns import api as api_campaign
from foretell.campaigns.api import make_run
from foretell.core.app import App, Parameter, ParameterType, Value
from foretell.core.prediction import Estimate
from foretell.core.run import State
from foretell.runtimes import api as api_learning
from foretell.runtimes.api import load_predictor, specify, usual_allocation

EXAMPLE = Path(__file__).parent.parent / "examples" / "fcnet"
COUNT, SEED = 20, 20261115


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, Path(folder) / "app", ignore=shutil.ignore_patterns(".foretell"))
        app = apps_spec.load_app(Path(folder) / "app" / "foretell.yaml")
        with foretell_stores.open_store(Path(folder) / "store.db") as store:
            campaign = api_campaign.generate(app, store=store, jobs=1)
            api_learning.build(app, store=store)
            predictor = load_predictor(app, store)
            specs = specify(app, draw_configurations(app), allocation=usual_allocation(predictor))
            predictions = predictor.predict(specs)
            runs = [make_run(app, spec, store) for spec in specs]
    pairs = [
        (prediction, run.usage)
        for prediction, run in zip(predictions, runs, strict=True)
        if run.state is State.COMPLETED and run.usage is not None
    ]
    times = [(prediction.elapsed_s, usage.elapsed_s) for prediction, usage in pairs]
    memory = [
        (prediction.peak_memory_bytes, float(usage.peak_memory_bytes))
        for prediction, usage in pairs
        if prediction.peak_memory_bytes is not None and usage.peak_memory_bytes is not None
    ]
    return {
        "runs learned from": campaign.completed,
        "unseen configurations run": len(pairs),
        **_judge("time", times),
        **_judge("memory", memory),
        "requests too small, time %": 100
        * statistics.fmean(usage.elapsed_s > prediction.request.walltime_s for prediction, usage in pairs),
    }


def _judge(name: str, pairs: list[tuple[Estimate, float]]) -> dict[str, float]:
    errors = [abs(estimate.value - measured) / measured for estimate, measured in pairs]
    inside = [estimate.low <= measured <= estimate.high for estimate, measured in pairs]
    widths = [(estimate.high - estimate.low) / estimate.value for estimate, _ in pairs]
    return {
        f"{name}: median error %": 100 * statistics.median(errors),
        f"{name}: mean error %": 100 * statistics.fmean(errors),
        f"{name}: largest error %": 100 * max(errors),
        f"{name}: inside the 90 % interval %": 100 * statistics.fmean(inside),
        f"{name}: mean width of the interval %": 100 * statistics.fmean(widths),
    }


def draw_configurations(app: App) -> list[dict[str, Value]]:
    """Random configurations within the app's targets; where it names none, its full-scale values."""
    draw = random.Random(SEED)
    taken = {tuple(values) for values in _full_scale_grid(app)}
    drawn: list[dict[str, Value]] = []
    while len(drawn) < COUNT:
        configuration = {parameter.name: _draw_value(parameter, draw) for parameter in app.parameters}
        if tuple(configuration.values()) not in taken:
            taken.add(tuple(configuration.values()))
            drawn.append(configuration)
    return drawn


def _full_scale_grid(app: App) -> list[list[Value]]:
    grid: list[list[Value]] = [[]]
    for parameter in app.parameters:
        grid = [[*row, value] for row in grid for value in parameter.full_scale.values]
    return grid


def _draw_value(parameter: Parameter, draw: random.Random) -> Value:
    target = parameter.target or parameter.full_scale
    if target.low is None or target.high is None:
        return draw.choice(target.values)
    if parameter.type is ParameterType.INTEGER:
        return draw.randint(int(target.low), int(target.high))
    return draw.uniform(target.low, target.high)
