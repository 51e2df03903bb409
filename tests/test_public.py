"""What ``import foretell`` gives: every public name, and tables where people have tables."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import foretell
from foretell.core.app import Value
from foretell.core.errors import NotEnoughRunsError, NotFoundError, SpecError
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Prediction, Recommendation
from foretell.stores import RunStore


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    number = np.array([1, 2, 3, 4, 6, 8, 12, 16, 20, 24])
    return pd.DataFrame({"n": number, "fast": number % 2 == 0, "took": 5.0 + 2 * number, "peak": 10**8 * number})


@pytest.fixture(scope="module")
def store(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with foretell.open_store(tmp_path_factory.mktemp("api") / "store.db") as opened:
        result = foretell.import_runs(
            table, app="law", columns=foretell.Columns(elapsed="took", memory="peak"), store=opened
        )
        assert (result.added, result.parameters) == (len(table), ("n", "fast"))
        card = foretell.build("law", store=opened)
        assert isinstance(card, ModelCard)
        assert set(card.judgements) == {"elapsed_s", "peak_memory_bytes"}
        yield opened


def test_every_public_name_is_there() -> None:
    assert {"load_app", "generate", "build", "predict", "recommend"} <= set(foretell.__all__) <= set(dir(foretell))
    assert all(callable(getattr(foretell, name)) for name in foretell.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        foretell.nosuch  # type: ignore[attr-defined]  # noqa: B018


def test_importing_foretell_is_light() -> None:
    heavy = {"numpy", "pandas", "sklearn", "scipy", "sqlalchemy", "matplotlib", "rich", "click", "yaml"}
    code = f"import sys, foretell; print(*(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_predict_takes_a_frame_a_mapping_or_several(store: RunStore) -> None:
    frame = pd.DataFrame({"fast": [True, False], "n": [10, 15]})
    rows: list[dict[str, str | Value]] = [{"n": 10, "fast": True}, {"n": "15", "fast": "false"}]
    from_frame = foretell.predict("law", frame, store=store)
    assert all(isinstance(prediction, Prediction) for prediction in from_frame)
    assert foretell.predict("law", rows, store=store) == from_frame
    (alone,) = foretell.predict("law", rows[0], store=store)
    assert alone.parameters == from_frame[0].parameters
    assert alone.elapsed_s.high == pytest.approx(from_frame[0].elapsed_s.high)
    assert foretell.predict("law", [], store=store) == []
    assert foretell.predict("law", frame.iloc[:0], store=store) == []


def test_predictions_follow_the_law(store: RunStore) -> None:
    (prediction,) = foretell.predict("law", {"n": 14, "fast": True}, store=store)
    assert prediction.elapsed_s.value == pytest.approx(33, rel=0.1)
    assert prediction.peak_memory_bytes.value == pytest.approx(1.4e9, rel=0.1)


def test_a_wider_level_and_a_smaller_risk_ask_for_more(store: RunStore) -> None:
    narrow, wide = (foretell.predict("law", {"n": 14, "fast": True}, store=store, level=x)[0] for x in (0.5, 0.95))
    assert wide.elapsed_s.low <= narrow.elapsed_s.low <= narrow.elapsed_s.high <= wide.elapsed_s.high
    brave, careful = (foretell.predict("law", {"n": 14, "fast": True}, store=store, risk=x)[0] for x in (0.5, 0.01))
    assert brave.request.walltime_s <= careful.request.walltime_s


def test_recommend_picks_one_of_its_offers(store: RunStore) -> None:
    recommendation = foretell.recommend("law", {"n": 14, "fast": True}, site="osc", store=store)
    assert isinstance(recommendation, Recommendation)
    assert recommendation.picked in recommendation.offers
    assert recommendation.why


def test_errors_are_ours(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="Known: law"):
        foretell.predict("nobody", {}, store=store)
    with pytest.raises(NotFoundError, match=r"Known:.* local"):
        foretell.recommend("law", {"n": 14, "fast": True}, site="nowhere", store=store)
    with pytest.raises(SpecError, match="2 mistakes"):
        foretell.predict("law", {"n": "much", "fast": "perhaps"}, store=store)
    with foretell.open_store(tmp_path / "store.db") as few:
        foretell.import_runs(
            pd.DataFrame({"n": [1], "s": [1]}), app="few", columns=foretell.Columns(elapsed="s"), store=few
        )
        with pytest.raises(NotEnoughRunsError, match="1 finished"):
            foretell.build("few", store=few)
