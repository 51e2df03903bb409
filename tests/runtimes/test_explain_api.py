"""What drives a prediction, from Python."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import foretell
from foretell.core.errors import NotFoundError, SpecError
from foretell.core.run import Machine
from foretell.runtimes.render import describe_drivers, describe_sources
from foretell.stores import RunStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    """Runs that take 5 * epochs * batch_size^-0.4, twice that if checked; idle does nothing."""
    epochs, batch, idle = (axis.ravel() for axis in np.meshgrid([1, 2, 4, 8, 16], [16, 32, 64, 128], [1, 2]))
    checked = (epochs + batch // 16 + idle) % 2 == 0
    took = 5 * epochs * batch**-0.4 * (1 + checked) * np.random.default_rng(0).lognormal(0, 0.01, len(epochs))
    table = pd.DataFrame({"epochs": epochs, "batch_size": batch, "idle": idle, "checked": checked, "took": took})
    with foretell.open_store(tmp_path_factory.mktemp("explaining") / "store.db") as opened:
        foretell.import_runs(table, app="net", columns=foretell.Columns(elapsed="took"), store=opened)
        foretell.build("net", store=opened)
        yield opened


def test_sentence_has_the_right_exponents(store: RunStore) -> None:
    time = foretell.explain("net", {"epochs": 8, "batch_size": 64, "checked": False}, store=store).elapsed_s
    said = describe_drivers(time)
    assert said.startswith("Time grows with epochs^1.0 and batch_size^-0.4; is ")
    assert said.endswith("x from checked = False to True")


def test_what_is_not_given_is_as_usual(store: RunStore) -> None:
    explanation = foretell.explain("net", {"epochs": 16}, store=store)
    assert explanation.parameters.keys() == {"epochs", "batch_size", "idle", "checked"}
    assert explanation.parameters["batch_size"] == explanation.usual["batch_size"] == 32
    assert isinstance(explanation.parameters["checked"], bool)
    (only,) = explanation.elapsed_s.contributions
    assert (only.name, only.value, only.usual, only.share) == ("epochs", 16, 4, pytest.approx(1))
    assert only.factor == pytest.approx(4, rel=0.1)


def test_resources_never_run_are_named(store: RunStore) -> None:
    explanation = foretell.explain("net", {"epochs": 8}, resources={"cores": 48}, store=store)
    assert explanation.allocation.cores == 48
    assert "of the uncertainty is cores = 48, never run (runs had 1)" in describe_sources(explanation.elapsed_s)


def test_another_machine_contributes(store: RunStore) -> None:
    explanation = foretell.explain("net", {"epochs": 8}, machine=Machine(cpu_model="another"), store=store)
    assert "another machine than any run's" in describe_sources(explanation.elapsed_s)


def test_mistakes_are_reported(store: RunStore) -> None:
    with pytest.raises(SpecError, match="2 mistakes"):
        foretell.explain("net", {"epochs": "many", "nosuch": 1}, store=store)
    with pytest.raises(NotFoundError, match="Known: net"):
        foretell.explain("nobody", store=store)
