"""A stored model comes back the same; one that somebody tampered with does nothing but complain."""

import functools
import operator
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.core.errors import StoreError
from foretell.core.run import RunSpec
from foretell.core.serialization import from_record, to_record
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.regressor_files import dump_models, load_models


class _Trap:
    """Leaves a file behind when it is unpickled or given its state."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.fixture(scope="session")
def blob(predictor: Predictor) -> bytes:
    return predictor.dump()


def test_loaded_predictor_predicts_the_same(
    predictor: Predictor, blob: bytes, build_spec: Callable[..., RunSpec]
) -> None:
    loaded = Predictor.load(blob, from_record(type(predictor.card), to_record(predictor.card)))
    specs = [build_spec(epochs=epochs, kind=kind) for epochs in (1, 50, 5000) for kind in "abc"]
    assert loaded.predict(specs) == predictor.predict(specs)
    assert loaded.card == predictor.card


def test_nothing_in_a_blob_is_pickled(blob: bytes) -> None:
    assert skops.io.get_untrusted_types(data=blob)  # our own models; each is named, none is code
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(blob)


def _traps(path: Path) -> dict[str, object]:
    command = f"touch {path}"
    return {
        "function": os.system,
        "partial": functools.partial(os.system, command),
        "method": operator.methodcaller("system", command),
        "object": _Trap(path),
    }


@pytest.mark.parametrize("name", ["function", "partial", "method", "object"])
@pytest.mark.parametrize("place", ["models", "facts", "beside"])
def test_foreign_type_is_refused_and_not_run(predictor: Predictor, tmp_path: Path, name: str, place: str) -> None:
    path = tmp_path / "owned"
    trap = _traps(path)[name]
    content: dict[str, object] = {"facts": "{}", "models": {"elapsed_s": predictor.models["elapsed_s"].model}}
    content[place] = {"elapsed_s": trap} if place == "models" else trap
    with pytest.raises(StoreError, match="run 'foretell build'"):
        Predictor.load(bytes(skops.io.dumps(content)), predictor.card)
    assert not path.exists()


def test_pickle_is_refused_and_not_run(predictor: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "owned"
    with pytest.raises(StoreError, match="run 'foretell build'"):
        Predictor.load(pickle.dumps(_Trap(path)), predictor.card)
    assert not path.exists()


@pytest.mark.parametrize("foreign", [np.ones(3), {"a": 1}, "text", None])
def test_what_is_no_model_is_refused(foreign: object) -> None:
    with pytest.raises(StoreError, match="run 'foretell build'"):
        load_models(bytes(skops.io.dumps({"facts": "{}", "models": {"elapsed_s": foreign}})))


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": None},
        {"encoder": {"fields": [{"name": "n"}]}},
        {"spreads": {"elapsed_s": {}}},
        {"factors": []},
        {"factors": {"unknown": 1.0}},
        {"formula": "__import__('os').system('true')"},
        {"formula": 7},
    ],
)
def test_odd_facts_are_refused(predictor: Predictor, changes: dict[str, object]) -> None:
    models, facts = load_models(predictor.dump())
    with pytest.raises(StoreError, match="run 'foretell build'"):
        Predictor.load(dump_models(models, facts={**facts, **changes}), predictor.card)


@pytest.mark.parametrize("missing", ["encoder", "spreads", "factors", "formula"])
def test_missing_facts_are_refused(predictor: Predictor, missing: str) -> None:
    models, facts = load_models(predictor.dump())
    del facts[missing]
    with pytest.raises(StoreError, match="run 'foretell build'"):
        Predictor.load(dump_models(models, facts=facts), predictor.card)


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_bytes_are_refused_or_harmless(predictor: Predictor, blob: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(blob) - 1))
    kind = data.draw(st.sampled_from(["cut", "changed", "inserted"]))
    byte = data.draw(st.binary(min_size=1, max_size=4))
    rest = {"cut": b"", "changed": byte + blob[at + len(byte) :], "inserted": byte + blob[at:]}[kind]
    try:
        Predictor.load(blob[:at] + rest, predictor.card)
    except StoreError as exc:
        message = str(exc)
    else:
        message = "run 'foretell build'"
    assert "run 'foretell build'" in message


@pytest.mark.parametrize("nonsense", [b"", b"PK", b"{}", b"\x80\x04.", bytes(1000)])
def test_nonsense_is_refused(predictor: Predictor, nonsense: bytes) -> None:
    with pytest.raises(StoreError, match="run 'foretell build'"):
        Predictor.load(nonsense, predictor.card)
