"""Model files that somebody changed: predictions end in one sentence, never in a crash."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.errors import ForetellError, StoreError
from foretell.models.persist import dump_models, load_models
from foretell.models.runs import REGRESSORS
from foretell.models.runs.boosting import BoostingRunRegressor
from foretell.models.runs.tree import TreeRunRegressor

_ROOT = Path(__file__).parents[2]
_SHIPPED = _ROOT / "src/foretell/models"
_TRIALS = 60

# In a process of its own: what must not happen is that it dies.
_FUZZ = """
import sys
from tests.security.test_models import {name}
{name}(int(sys.argv[1]))
"""


def _run_apart(name: str, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FUZZ.format(name=name), str(seed)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


def _fit(name: str) -> Any:
    draw = np.random.default_rng(0)
    X = draw.uniform(1, 10, (80, 3))
    members = {"members": [TreeRunRegressor()], "weights": [1.0]} if name == "blend" else {}
    return REGRESSORS[name](**members).fit(X, X[:, 0] ** 2 + X[:, 1])


def _change_array(array: np.ndarray[Any, Any], draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """Some of its values, its length or its type."""
    changed = array.copy()
    if not changed.ndim:
        return np.array([draw.integers(1000)])
    kind = draw.integers(6)
    if kind == 0:
        return changed[:0]
    if kind == 1 and changed.size:
        return changed[: max(1, len(changed) // 2)]
    if kind == 2 and changed.dtype.kind == "f":
        changed[...] = np.nan
        return changed
    data = changed.view(np.uint8).reshape(-1) if changed.flags.c_contiguous and changed.size else None
    if data is not None and len(data):
        places = draw.integers(len(data), size=max(1, len(data) // 50))
        data[places] = draw.integers(256, size=len(places), dtype=np.uint8)
    return changed


def _change_archive(blob: bytes, draw: np.random.Generator) -> bytes:
    """One of the arrays in an archive of skops."""
    source = zipfile.ZipFile(io.BytesIO(blob))
    arrays = [name for name in source.namelist() if name.endswith(".npy")]
    chosen = set(draw.choice(arrays, size=min(3, len(arrays)), replace=False).tolist())
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name in chosen:
                array = np.load(io.BytesIO(data), allow_pickle=False)
                file = io.BytesIO()
                np.save(file, _change_array(array, draw), allow_pickle=False)
                data = file.getvalue()
            target.writestr(name, data)
    return made.getvalue()


def fuzz_regressors(seed: int) -> None:
    """Change arrays of every kind of model, and ask what is left."""
    draw = np.random.default_rng(seed)
    blobs = {name: dump_models({"elapsed_s": _fit(name)}, facts={}) for name in REGRESSORS}
    for blob in blobs.values():
        for _ in range(_TRIALS // 4):
            try:
                models, _ = load_models(_change_archive(blob, draw))
            except StoreError:
                continue
            try:
                models["elapsed_s"].predict(draw.uniform(1, 10, (5, 3)))
            except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError):
                continue  # which a predictor turns into an error of ours


def fuzz_predictors(seed: int) -> None:
    """Change a whole predictor as it is stored, and predict by it."""
    import foretell
    from foretell.predictor.predictor import Predictor

    draw = np.random.default_rng(seed)
    record = _build_record(foretell)
    specs = _list_specs()
    for _ in range(_TRIALS):
        try:
            predictor = Predictor.load(_change_archive(record.blob, draw), record.card)
            predictor.predict(specs)
        except StoreError:
            continue


def fuzz_facts(seed: int) -> None:
    """Change what is said beside the arrays."""
    import foretell
    from foretell.predictor.predictor import Predictor

    draw = np.random.default_rng(seed)
    record = _build_record(foretell)
    models, facts = load_models(record.blob)
    for _ in range(_TRIALS):
        changed = json.loads(json.dumps(facts))
        _change_value(changed, draw)
        try:
            predictor = Predictor.load(dump_models(models, facts=changed), record.card)
            predictor.predict(_list_specs())
        except StoreError:
            continue


def fuzz_files(seed: int) -> None:
    """Change the arrays and records of models of steps and of consumption that ship."""
    import tempfile

    import safetensors.numpy

    from foretell.models.operators.persist import read_header
    from foretell.predictor.consumption import load_consumption_model
    from foretell.predictor.steps import load_step_model

    draw = np.random.default_rng(seed)
    path = Path(tempfile.mkdtemp()) / "changed.safetensors"
    for folder, load in (("operators", load_step_model), ("consumption", load_consumption_model)):
        for source in sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[:3]:
            arrays, said = safetensors.numpy.load_file(source), read_header(source)
            for trial in range(_TRIALS // 4):
                changed = dict(arrays)
                record, facts = json.loads(said["record"]), json.loads(said["facts"])
                if trial % 2 and arrays:
                    name = sorted(arrays)[draw.integers(len(arrays))]
                    changed[name] = _change_array(arrays[name], draw)
                else:
                    _change_value([record, facts][draw.integers(2)], draw)
                words = {**said, "record": json.dumps(record), "facts": json.dumps(facts)}
                path.write_bytes(safetensors.numpy.save(changed, metadata=words))
                try:
                    _ask(load(path))
                except ForetellError:
                    continue


def _ask(predictor: Any) -> None:
    from foretell.predictor.steps import StepPredictor

    if isinstance(predictor, StepPredictor):
        for trees in getattr(predictor.model, "kernels_", getattr(predictor.model, "calls_", None)).trees_.values():
            trees.predict(np.ones((3, 40)))
        predictor._find_spread(0, 0.9)
    else:
        predictor.model._correct(np.ones((2, 17)))


_WORST = [None, "x", -1, 1e308, float("nan"), float("inf"), [], {}, True, 10**30, ""]


def _change_value(value: Any, draw: np.random.Generator) -> None:
    """Something, somewhere in plain data."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = keys[draw.integers(len(keys))]
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            value = inner
            continue
        value[key] = _WORST[draw.integers(len(_WORST))]
        return


def _build_record(foretell: Any) -> Any:
    import pandas as pd

    table = pd.DataFrame({"n": range(1, 41), "kind": ["a", "b"] * 20, "s": [n**1.5 for n in range(1, 41)]})
    with foretell.open_store("sqlite://") as store:
        foretell.import_runs(table, app="demo", columns=foretell.Columns(elapsed="s"), store=store)
        foretell.build("demo", store=store)
        return store.find_model("demo")


def _list_specs() -> list[Any]:
    from foretell.entities.run import RunSpec

    return [RunSpec(app="demo", parameters={"n": n, "kind": kind}) for n, kind in ((3, "a"), (7.5, "c"), (400, "b"))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["fuzz_regressors", "fuzz_predictors", "fuzz_facts", "fuzz_files"])
def test_changed_models_neither_crash_nor_trace_back(name: str, seed: int) -> None:
    _run_apart(name, seed)


def _break_nodes(model: Any, field: str, value: int) -> None:
    nodes = model.model_._predictors[0][0].nodes
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    nodes[field][inner[0]] = value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left", 10**6),
        ("right", 10**6),
        ("left", 0),
        ("feature_idx", 10**6),
        ("feature_idx", -5),
        ("is_categorical", 1),
    ],
)
def test_boosted_trees_that_lead_outside_are_refused(field: str, value: int) -> None:
    model = _fit("boosting")
    assert isinstance(model, BoostingRunRegressor)
    _break_nodes(model, field, value)
    with pytest.raises(StoreError, match="'foretell build' to make it anew"):
        load_models(dump_models({"elapsed_s": model}, facts={}))


@pytest.mark.parametrize(("field", "value"), [("left_child", 10**6), ("right_child", 0), ("feature", 10**6)])
def test_a_decision_tree_that_leads_outside_is_refused(field: str, value: int) -> None:
    model = _fit("tree")
    state = model.model_.tree_.__getstate__()
    state["nodes"][field][0] = value
    model.model_.tree_.__setstate__(state)
    with pytest.raises(StoreError, match="'foretell build' to make it anew"):
        load_models(dump_models({"elapsed_s": model}, facts={}))


def test_every_kind_of_model_passes_as_it_is_fitted() -> None:
    for name in REGRESSORS:
        load_models(dump_models({"elapsed_s": _fit(name)}, facts={}))
