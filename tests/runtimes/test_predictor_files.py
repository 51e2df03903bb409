"""A stored predictor comes back the same; one that somebody changed is refused in one sentence."""

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foretell
from foretell.core.app import App
from foretell.core.errors import StoreError
from foretell.core.model_card import ModelRecord
from foretell.core.model_files import from_bytes
from foretell.core.run import RunSpec
from foretell.core.serialization import from_record, to_record
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.predictor_files import KIND, dump_models, dump_predictor, load_models, read_predictor
from foretell.runtimes.regressors import RunRegressor

pytestmark = pytest.mark.slow

OLD_FORMAT = Path(__file__).parent / "data" / "model_of_version_0_1.skops"
REMEDY = "it is rebuilt on request: run 'foretell build demo'"


class _Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.fixture(scope="session")
def blob(predictor: Predictor) -> bytes:
    return dump_predictor(predictor)


def test_loaded_predictor_predicts_the_same(
    predictor: Predictor, blob: bytes, build_spec: Callable[..., RunSpec]
) -> None:
    loaded = read_predictor(blob, from_record(type(predictor.card), to_record(predictor.card)))
    specs = [build_spec(epochs=epochs, kind=kind) for epochs in (1, 50, 5000) for kind in "abc"]
    assert loaded.predict(specs) == predictor.predict(specs)
    assert loaded.card == predictor.card


def test_loaded_predictor_is_written_again_the_same(predictor: Predictor, blob: bytes) -> None:
    loaded = read_predictor(blob, predictor.card)
    first, again = (from_bytes(one, kinds=[KIND], source="", remedy="") for one in (blob, dump_predictor(loaded)))
    assert (first.record, first.facts) == (again.record, again.facts)
    assert {name: array.tobytes() for name, array in first.arrays.items()} == {
        name: array.tobytes() for name, array in again.arrays.items()
    }


def test_a_model_in_several_blends_is_stored_once(predictor: Predictor, blob: bytes) -> None:
    content = from_bytes(blob, kinds=[KIND], source="", remedy="")
    places = content.record["names"]
    assert places["elapsed_s deviation"] in content.record["models"][places["elapsed_s between"]]["parts"]


def test_a_file_holds_arrays_and_text_only(blob: bytes) -> None:
    assert all(array.dtype.kind in "biuf" for array in safetensors.numpy.load(blob).values())
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(blob)


def test_a_model_of_the_version_before_is_refused_with_what_to_do(predictor: Predictor) -> None:
    with pytest.raises(StoreError) as caught:
        read_predictor(OLD_FORMAT.read_bytes(), predictor.card)
    assert str(caught.value) == (
        f"the stored model of 'demo': written by an earlier version of Foretell, in another format; {REMEDY}"
    )


def test_a_store_with_a_model_of_the_version_before_is_rebuilt_on_request(
    app: App, predictor: Predictor, build_runs: Any
) -> None:
    with foretell.open_store("sqlite://") as store:
        store.save_app(app)
        store.add_runs(build_runs(8))
        foretell.build("demo", store=store)
        record: ModelRecord | None = store.find_model("demo")
        assert record is not None
        store.save_model(replace(record, blob=OLD_FORMAT.read_bytes()))
        question: dict[str, Any] = {"epochs": 3, "size": 20.0, "kind": "a"}
        for ask in (foretell.predict, foretell.explain, foretell.recommend):
            with pytest.raises(StoreError, match="run 'foretell build demo'"):
                ask("demo", question, store=store)
        foretell.build("demo", store=store)
        assert foretell.predict("demo", question, store=store)


def test_a_newer_format_is_refused_with_what_to_do(predictor: Predictor, blob: bytes) -> None:
    arrays = safetensors.numpy.load(blob)
    newer = safetensors.numpy.save(arrays, metadata={"version": "99", "versions": '{"foretell": "3.0"}'})
    with pytest.raises(StoreError, match=f"format '99', written by Foretell 3.0, .* reads format 1; {REMEDY}"):
        read_predictor(newer, predictor.card)


def test_pickle_is_refused_and_not_run(predictor: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "owned"
    with pytest.raises(StoreError, match=REMEDY):
        read_predictor(pickle.dumps(_Trap(path)), predictor.card)
    assert not path.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": None},
        {"encoder": {"fields": [{"name": "n"}]}},
        {"encoder": {"fields": []}},
        {"spreads": {"elapsed_s": {}}},
        {"spreads": {}},
        {"spreads": {"elapsed_s": {"residuals": [], "scale": 1.0}}},
        {"spreads": {"elapsed_s": {"residuals": [1.0, -1.0], "scale": 1.0}}},
        {"spreads": {"elapsed_s": {"residuals": [1.0], "scale": 0.0}}},
        {"factors": []},
        {"factors": {}},
        {"factors": {"unknown": 1.0}},
        {"factors": {"elapsed_s": -1.0}},
        {"saturation": {"elapsed_s": {"high": [1.0], "believed": 0.5}}},
        {"marginals": {"elapsed_s": {"median": 0.0, "spread": {"residuals": [1.0], "scale": 1.0}}}},
        {"formula": "__import__('os').system('true')"},
        {"formula": "startup * unknown"},
        {"formula": 7},
        {"units": {"formula": "n", "names": ["m"]}},
        {"transferred": ["elapsed_s"]},
        {"source": {}},
    ],
)
def test_odd_facts_are_refused(predictor: Predictor, blob: bytes, changes: dict[str, object]) -> None:
    models, facts = load_models(blob)
    with pytest.raises(StoreError, match=REMEDY):
        read_predictor(dump_models(models, facts={**facts, **changes}), predictor.card)


@pytest.mark.parametrize("missing", ["encoder", "spreads", "factors", "formula", "units", "marginals", "saturation"])
def test_missing_facts_are_refused(predictor: Predictor, blob: bytes, missing: str) -> None:
    models, facts = load_models(blob)
    del facts[missing]
    with pytest.raises(StoreError, match=REMEDY):
        read_predictor(dump_models(models, facts=facts), predictor.card)


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_bytes_are_refused_or_harmless(predictor: Predictor, blob: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(blob) - 1))
    kind = data.draw(st.sampled_from(["cut", "changed", "inserted"]))
    byte = data.draw(st.binary(min_size=1, max_size=4))
    rest = {"cut": b"", "changed": byte + blob[at + len(byte) :], "inserted": byte + blob[at:]}[kind]
    try:
        read_predictor(blob[:at] + rest, predictor.card)
    except StoreError as exc:
        message = str(exc)
    else:
        message = REMEDY
    assert message.endswith(REMEDY)


@pytest.mark.parametrize("nonsense", [b"", b"PK", b"{}", b"\x80\x04.", bytes(1000)])
def test_nonsense_is_refused(predictor: Predictor, nonsense: bytes) -> None:
    with pytest.raises(StoreError, match=REMEDY):
        read_predictor(nonsense, predictor.card)


def test_loading_runs_no_model(predictor: Predictor, blob: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying models out took most of the time of a prediction."""
    monkeypatch.setattr(RunRegressor, "predict", lambda *_: pytest.fail("a model was run"))
    assert read_predictor(blob, predictor.card).models.keys() == predictor.models.keys()
