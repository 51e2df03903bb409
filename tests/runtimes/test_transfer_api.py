"""``foretell build --transfer``, from Python and from the command line, in a store with several apps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foretell
from foretell.core.errors import NotEnoughRunsError, NotFoundError, SpecError
from foretell.stores import RunStore

COLUMNS = foretell.Columns(elapsed="took")


def _table(count: int, *, times: float = 1.0, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    size, steps = (axis.ravel() for axis in np.meshgrid([10.0, 30.0, 100.0, 300.0], [1, 2, 5, 10]))
    chosen = draw.permutation(len(size))[:count]
    took = times * (2 + size[chosen] ** 1.5 * steps[chosen]) * draw.lognormal(0, 0.01, count)
    return pd.DataFrame({"size": size[chosen], "steps": steps[chosen], "took": took})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An app with many runs, one with three that take five times as long, and one that has nothing to do with them."""
    folder = tmp_path_factory.mktemp("transfer")
    other = pd.DataFrame({"files": range(1, 9), "took": np.arange(1.0, 9.0)})
    with foretell.open_store(folder / "store.db") as store:
        foretell.import_runs(_table(12), app="old", columns=COLUMNS, store=store)
        foretell.import_runs(_table(3, times=5, seed=1), app="new", columns=COLUMNS, store=store)
        foretell.import_runs(other, app="other", columns=COLUMNS, store=store)
    return folder


@pytest.fixture
def store(folder: Path) -> Iterator[RunStore]:
    with foretell.open_store(folder / "store.db") as opened:
        yield opened


def test_transfers_from_similar_apps(store: RunStore) -> None:
    card = foretell.build("new", store=store, transfer=True)
    assert card.transfer.source == "old"
    assert not any("other" in warning.text for warning in card.warnings)
    (prediction,) = foretell.predict("new", {"size": 100.0, "steps": 5}, store=store)
    assert prediction.elapsed_s.value == pytest.approx(5 * 5002, rel=0.1)


def test_stored_model_serves_every_command(store: RunStore) -> None:
    foretell.build("new", store=store, transfer=["old"])
    explanation = foretell.explain("new", {"size": 300.0, "steps": 2}, store=store)
    assert "size" in {contribution.name for contribution in explanation.elapsed_s.contributions}
    offers = foretell.recommend("new", {"size": 100.0, "steps": 5}, store=store)
    assert offers.picked.prediction.elapsed_s.value == pytest.approx(5 * 5002, rel=0.1)


def test_transfers_are_not_passed_on(store: RunStore) -> None:
    """Else apps that transfer from each other would hold ever more of each other's models."""
    foretell.build("new", store=store, transfer=True)
    with pytest.raises(NotEnoughRunsError, match="'new' has 3 finished configurations; 5 are needed"):
        foretell.build("old", store=store, transfer=["new"])
    assert foretell.build("other", store=store, transfer=True).transfer is None


def test_without_transfer_three_runs_are_too_few(store: RunStore) -> None:
    with pytest.raises(NotEnoughRunsError, match="'new' has 3 finished"):
        foretell.build("new", store=store)


def test_sources_must_be_other_apps_in_the_store(store: RunStore) -> None:
    with pytest.raises(SpecError, match="found 'new'; expected an app in the store other"):
        foretell.build("new", store=store, transfer=["new"])
    with pytest.raises(NotFoundError, match=r"no app named 'nobody'\. Known: new, old, other"):
        foretell.build("new", store=store, transfer=["nobody"])


def test_command_reports_the_transfer(folder: Path, foretell: Callable[..., Any]) -> None:
    words = ("build", "new", "--store", str(folder / "store.db"), "--plots", str(folder / "plots"))
    outcome = foretell(*words, "--transfer", folder=folder)
    assert outcome.code == 0, outcome.err
    assert "transferred from old (its predictions, scaled): error " in " ".join(outcome.out.split())
    record = foretell(*words, "--transfer-from", "old", "--json", folder=folder).record
    assert record["transfer"]["source"] == "old"
    assert record["transfer"]["alone"] is None
    assert record["transfer"]["with_source"]["mape"] < 10
