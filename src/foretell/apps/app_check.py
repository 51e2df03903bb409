"""Checks an app file: how many runs, which of them this machine cannot make, whether its program is installed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from foretell.apps.command import find_program_problem
from foretell.apps.sweep import count_runs, list_configurations
from foretell.core.app import App, Scale
from foretell.core.run import RunSpec
from foretell.schedulers.local import LocalRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCheck:
    """The runs of a valid app file.

    ``excluded`` ones do not meet its ``where``. ``impossible_here`` counts runs that this machine cannot make, by the
    reason; it is empty for an app whose runs are made elsewhere. ``warning`` is about its program.
    """

    app: str
    scaled_down_runs: int
    full_scale_runs: int
    excluded_runs: int
    impossible_here: Mapping[str, int]
    warning: str | None


def check_app(app: App) -> AppCheck:
    """Count the app's runs without making or storing anything."""
    sizes = {
        scale: Counter(allocation for _, allocation in list_configurations(app, scale))
        for scale in (Scale.SCALED_DOWN, Scale.FULL_SCALE)
    }
    small, full = (app.repetitions * counts.total() for counts in sizes.values())
    impossible: Counter[str] = Counter()
    if app.runner == "local":
        with LocalRunner() as runner:
            for allocation, count in sum(sizes.values(), Counter()).items():
                obstacle = runner.find_obstacle(RunSpec(app=app.name, parameters={}, allocation=allocation))
                if obstacle is not None:
                    impossible[obstacle] += app.repetitions * count
    return AppCheck(
        app=app.name,
        scaled_down_runs=small,
        full_scale_runs=full,
        excluded_runs=count_runs(app) - small - full,
        impossible_here=dict(impossible),
        warning=find_program_problem(app),
    )
