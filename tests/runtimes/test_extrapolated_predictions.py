"""A predictor answers on and off the grid with what was chosen for each."""

import numpy as np
import pytest

from foretell.core.app import App, Parameter, ParameterType, Phase, Scale
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.runtimes.encoding import BETWEEN, BEYOND
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import ELAPSED, Predictor
from foretell.runtimes.predictor_files import dump_predictor, read_predictor
from foretell.runtimes.run_table import build_table

APP = App(
    name="swept",
    command=("true",),
    parameters=(
        Parameter(name="steps", type=ParameterType.INTEGER),
        Parameter(name="size", type=ParameterType.INTEGER),
    ),
)
WITH_PHASES = App(
    name="swept",
    command=("true",),
    parameters=APP.parameters,
    phases=(Phase(name="start", pattern="x"), Phase(name="step", pattern="x")),
    estimate="start + steps * step",
)


def _runs() -> list[Run]:
    draw = np.random.default_rng(1)
    runs = []
    for steps in (10, 20, 40, 80, 160):
        for size in (8, 16, 32):
            step_s = 0.01 * size * float(np.exp(draw.normal(0, 0.01)))
            spec = RunSpec(
                app="swept",
                parameters={"steps": steps, "size": size},
                scale=Scale.FULL_SCALE if steps > 20 else Scale.SCALED_DOWN,
            )
            usage = Usage(elapsed_s=1 + steps * step_s, peak_memory_bytes=10**7 + size * 10**5)
            phases = {"start": 1.0, "step": step_s}
            runs.append(Run(spec=spec, state=State.COMPLETED, usage=usage, phases=phases))
    return runs


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return fit_predictor(WITH_PHASES, build_table(_runs()))


def _ask(steps: int, size: int) -> RunSpec:
    return RunSpec(app="swept", parameters={"steps": steps, "size": size})


def test_rows_have_the_regime_of_their_values(predictor: Predictor) -> None:
    asked = [_ask(40, 16), _ask(50, 16), _ask(40, 20), _ask(320, 16), _ask(320, 20), _ask(5, 8)]
    forecast = predictor.forecast(predictor.tabulate(asked), len(asked))
    assert forecast.regime.tolist() == [0, 1, 1, 2, 2, 2]


def test_answers_in_between_are_near_the_law(predictor: Predictor) -> None:
    (answer,) = predictor.predict([_ask(60, 24)])
    assert answer.elapsed_s.value == pytest.approx(1 + 60 * 0.24, rel=0.05)
    assert answer.elapsed_s.low < 1 + 60 * 0.24 < answer.elapsed_s.high


def test_each_side_of_the_grid_has_its_own_spread(predictor: Predictor) -> None:
    for regime in (BETWEEN, BEYOND):
        assert ELAPSED + regime in predictor.spreads
        assert ELAPSED + regime in predictor.models
    judgement = predictor.card.judgements[ELAPSED]
    assert judgement.between is not None
    assert judgement.between_winner
    assert judgement.beyond is not None
    assert judgement.beyond_winner


def test_pairs_say_the_same_as_rows(predictor: Predictor) -> None:
    specs = [_ask(40, 16), _ask(50, 20)]
    options = [(Allocation(cores=1), Machine()), (Allocation(cores=2), Machine())]
    crossed = predictor.forecast_pairs(specs, options)
    for place, (spec, (allocation, machine)) in enumerate((spec, option) for spec in specs for option in options):
        alone = RunSpec(app="swept", parameters=spec.parameters, allocation=allocation)
        (answer,) = predictor.predict([alone], machines=[machine])
        assert crossed.elapsed.value[place] == pytest.approx(answer.elapsed_s.value)
        assert crossed.elapsed.high[place] == pytest.approx(answer.elapsed_s.high)


def test_a_stored_predictor_still_knows_the_grid(predictor: Predictor) -> None:
    again = read_predictor(dump_predictor(predictor), predictor.card)
    specs = [_ask(40, 16), _ask(50, 20)]
    assert again.predict(specs) == predictor.predict(specs)


def test_more_values_that_were_not_measured_make_wider_intervals(predictor: Predictor) -> None:
    asked = [_ask(50, 16), _ask(50, 20)]
    width = predictor.forecast(predictor.tabulate(asked), len(asked)).basic.width
    alone = predictor.forecast(predictor.tabulate(asked), len(asked), regime=0).basic.width
    assert (width / alone).tolist() == pytest.approx([1, np.sqrt(1.5)])
