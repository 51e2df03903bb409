from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from foretell.core.app import App, Parameter, ParameterType, Phase
from foretell.core.run import Allocation, Run, RunSpec, State, Usage
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.harp import NeuralRunRegressor
from foretell.runtimes.run_table import build_table

BuildRuns = Callable[..., list[Run]]


@pytest.fixture(scope="session", autouse=True)
def small_models() -> Iterator[None]:
    """The same candidates with fewer trees and neurons: these tests are about what is done with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoostingRunRegressor.__init__, "__defaults__", (10, 0.3, 4, 0))
        patch.setattr(NeuralRunRegressor.__init__, "__defaults__", ((2,), 1e-2, 0))
        yield


@pytest.fixture(scope="session")
def app() -> App:
    """Set-up, then epochs; each leaves a phase."""
    parameters = tuple(
        Parameter(name=name, type=kind)
        for name, kind in (
            ("epochs", ParameterType.INTEGER),
            ("size", ParameterType.NUMBER),
            ("kind", ParameterType.TEXT),
        )
    )
    phases = (Phase(name="startup", pattern="x"), Phase(name="epoch", pattern="y"))
    return App(name="demo", parameters=parameters, phases=phases, estimate="startup + epochs * epoch")


@pytest.fixture(scope="session")
def build_runs() -> BuildRuns:
    """Runs that take what a law says: 3 + epochs * size / 100 (twice that for kind "b"), 1 MB a unit of size."""

    def build(count: int = 24, *, noise: float = 0.02, memory: bool = True, seed: int = 0) -> list[Run]:
        draw = np.random.default_rng(seed)
        return [_build_run(number, draw, noise=noise, memory=memory) for number in range(count)]

    return build


def _build_run(number: int, draw: np.random.Generator, *, noise: float, memory: bool) -> Run:
    epochs, size, kind = int(draw.integers(1, 60)), float(draw.uniform(10, 400)), "ab"[number % 2]
    startup, epoch = 3.0, size / 100 * (1 + (kind == "b"))
    elapsed_s = (startup + epochs * epoch) * draw.lognormal(0, noise)
    return Run(
        spec=RunSpec(
            app="demo",
            parameters={"epochs": epochs, "size": size, "kind": kind},
            allocation=Allocation(cores=2),
        ),
        state=State.COMPLETED,
        usage=Usage(elapsed_s=elapsed_s, peak_memory_bytes=int(2**20 * (50 + size)) if memory else None),
        phases={"startup": startup, "epoch": epoch},
    )


@pytest.fixture(scope="session")
def predictor(app: App, build_runs: BuildRuns) -> Predictor:
    return fit_predictor(app, build_table(build_runs()))


@pytest.fixture(scope="session")
def build_spec() -> Callable[..., RunSpec]:
    def build(*, epochs: int = 20, size: float = 100.0, kind: str = "a", cores: int = 2) -> RunSpec:
        return RunSpec(
            app="demo",
            parameters={"epochs": epochs, "size": size, "kind": kind},
            allocation=Allocation(cores=cores),
        )

    return build


@pytest.fixture(scope="session")
def unseen(build_runs: BuildRuns) -> Sequence[Run]:
    return build_runs(200, seed=99)
