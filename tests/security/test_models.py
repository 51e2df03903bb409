"""Model files that somebody changed: predictions end in one sentence, never in a crash."""

import copy
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from tests.contracts.consumption import build_jobs

from foretell.core.devices import Device
from foretell.core.errors import ForetellError, StoreError
from foretell.core.model_files import ModelContent, from_bytes, read_number, to_bytes
from foretell.core.serialization import from_record
from foretell.runtimes.predictor_files import KIND, dump_models, load_models, read_predictor
from foretell.runtimes.regressors import REGRESSORS, BlendRunRegressor, build_blend
from foretell.runtimes.regressors.harp import TreeRunRegressor

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_SHIPPED = _ROOT / "src/foretell"
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


_QUICK = ("linear", "tree", "neural", "neural PCA", "constant", "power")


def _fit(name: str, rows: int = 80) -> Any:
    draw = np.random.default_rng(0)
    X = draw.uniform(1, 10, (rows, 3))
    members = {"members": [TreeRunRegressor()], "weights": [1.0]} if name == "blend" else {}
    return REGRESSORS[name](**members).fit(X, X[:, 0] ** 2 + X[:, 1])


def _dump(name: str) -> bytes:
    return dump_models({"elapsed_s": _fit(name)}, facts={})


def _open(blob: bytes) -> ModelContent:
    """The content, of which every part can be changed."""
    content = from_bytes(blob, kinds=[KIND], source="", remedy="")
    return replace(content, arrays={name: array.copy() for name, array in content.arrays.items()})


def _change_array(array: np.ndarray[Any, Any], draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """Some of its values, its length or its type."""
    changed = array.copy()
    if not changed.ndim:
        return np.array([draw.integers(1000)])
    kind = draw.integers(7)
    if kind == 0:
        return changed[:0]
    if kind == 1 and changed.size:
        return changed[: max(1, len(changed) // 2)]
    if kind == 2 and changed.dtype.kind == "f":
        changed[...] = np.nan
        return changed
    if kind == 3:
        return changed.astype(draw.choice(["float32", "int64", "int8", "bool"]))
    data = changed.view(np.uint8).reshape(-1) if changed.flags.c_contiguous and changed.size else None
    if data is not None and len(data):
        places = draw.integers(len(data), size=max(1, len(data) // 50))
        data[places] = draw.integers(256, size=len(places), dtype=np.uint8)
    return changed


def _change_arrays(blob: bytes, draw: np.random.Generator) -> bytes:
    """Some of the arrays in a file."""
    content = _open(blob)
    names = sorted(content.arrays)
    chosen = draw.choice(names, size=min(3, len(names)), replace=False).tolist()
    changed = {name: _change_array(content.arrays[name], draw) for name in chosen}
    return to_bytes(replace(content, arrays={**content.arrays, **changed}))


_WORST: list[Any] = [None, "x", -1, 1e308, float("nan"), float("inf"), [], {}, True, 10**30, 10**400, 2**31 - 1, ""]


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


def _predict(blob: bytes, draw: np.random.Generator) -> None:
    try:
        models, _ = load_models(blob)
    except StoreError:
        return
    for model in models.values():
        try:
            model.predict(draw.uniform(1, 10, (5, 3)))
        except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError):
            continue  # which a predictor turns into an error of ours


def fuzz_regressors(seed: int) -> None:
    """Change arrays of every kind of model, and predict with what is left."""
    draw = np.random.default_rng(seed)
    blobs = [blob for blob in map(_dump, REGRESSORS) if _open(blob).arrays]
    for blob in blobs:
        for _ in range(_TRIALS // 4):
            _predict(_change_arrays(blob, draw), draw)


def fuzz_records(seed: int) -> None:
    """Change plain values, and what is part of what, of every kind of model, and predict with what is left."""
    draw = np.random.default_rng(seed)
    for name in REGRESSORS:
        content = _open(_dump(name))
        for _ in range(_TRIALS // 2):
            record = copy.deepcopy(dict(content.record))
            for _ in range(draw.integers(1, 4)):
                _change_value(record, draw)
            _predict(to_bytes(replace(content, record=record)), draw)


def fuzz_predictors(seed: int) -> None:
    """Change the arrays of a whole predictor as it is stored, and predict by it."""
    draw = np.random.default_rng(seed)
    record = _build_record()
    for _ in range(_TRIALS):
        try:
            read_predictor(_change_arrays(record.blob, draw), record.card).predict(_list_specs())
        except StoreError:
            continue


def fuzz_facts(seed: int) -> None:
    """Change what a file says about its models."""
    draw = np.random.default_rng(seed)
    record = _build_record()
    models, facts = load_models(record.blob)
    for _ in range(3 * _TRIALS):
        changed = json.loads(json.dumps(facts))
        _change_value(changed, draw)
        try:
            read_predictor(dump_models(models, facts=changed), record.card).predict(_list_specs())
        except StoreError:
            continue


def fuzz_files(seed: int) -> None:
    """Change the arrays and records of models of steps and of consumption that ship."""
    from foretell.distributed.consumption_predictor import load_consumption_model
    from foretell.steps.step_predictor import load_step_predictor

    draw = np.random.default_rng(seed)
    path = Path(tempfile.mkdtemp()) / "changed.safetensors"
    for folder, load in (("steps", load_step_predictor), ("distributed", load_consumption_model)):
        for source in sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[:3]:
            arrays, header = safetensors.numpy.load_file(source), _read_header(source)
            for trial in range(_TRIALS // 4):
                changed = dict(arrays)
                record, facts = json.loads(header["record"]), json.loads(header["facts"])
                if trial % 2 and arrays:
                    name = sorted(arrays)[draw.integers(len(arrays))]
                    changed[name] = _change_array(arrays[name], draw)
                else:
                    _change_value([record, facts][draw.integers(2)], draw)
                words = {**header, "record": json.dumps(record), "facts": json.dumps(facts)}
                path.write_bytes(safetensors.numpy.save(changed, metadata=words))
                try:
                    _run_loaded(load(path))
                except ForetellError:
                    continue


def _read_header(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, "numpy") as file:
        return dict(file.metadata())


def _run_loaded(predictor: Any) -> None:
    from foretell.steps.step_predictor import StepPredictor

    if isinstance(predictor, StepPredictor):
        for trees in getattr(predictor.model, "kernels_", getattr(predictor.model, "calls_", None)).trees_.values():
            trees.predict(np.ones((3, 40)))
        predictor.bound(1.0, level=0.9)
    elif predictor.method == "timeline":
        predictor.model._correct(np.ones((2, 17)))
    else:
        predictor.model.predict(build_jobs()[0][:2])


def _build_record() -> Any:
    import pandas as pd

    import foretell

    table = pd.DataFrame({"n": range(1, 41), "kind": ["a", "b"] * 20, "s": [n**1.5 for n in range(1, 41)]})
    with foretell.open_store("sqlite://") as store:
        foretell.import_runs(table, app="demo", columns=foretell.Columns(elapsed="s"), store=store)
        foretell.build("demo", store=store)
        return store.find_model("demo")


def _list_specs() -> list[Any]:
    from foretell.core.run import RunSpec

    return [RunSpec(app="demo", parameters={"n": n, "kind": kind}) for n, kind in ((3, "a"), (7.5, "c"), (400, "b"))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["fuzz_regressors", "fuzz_records", "fuzz_predictors", "fuzz_facts", "fuzz_files"])
def test_changed_models_do_not_crash(name: str, seed: int) -> None:
    _run_apart(name, seed)


@pytest.mark.parametrize("rows", [2, 80, 2100])  # a network of more than 2000 is fitted in another way
def test_unchanged_models_of_every_kind_are_accepted(rows: int) -> None:
    fitted = [_fit(name, rows) for name in REGRESSORS if rows < 1000 or name in _QUICK]
    members = [model for model in fitted if not isinstance(model, BlendRunRegressor)]
    blend = build_blend(members, np.ones(len(members)))
    for model in (*fitted, blend):
        blob = dump_models({"elapsed_s": model}, facts={})
        models, _ = load_models(blob)
        assert _open(dump_models(models, facts={})).record == _open(blob).record


def _find_inner(arrays: Any) -> int:
    """The first node that is not a leaf."""
    return int(np.flatnonzero(arrays["0.left"] != np.arange(len(arrays["0.left"])))[0])


@pytest.mark.parametrize("family", ["boosting", "tree"])
@pytest.mark.parametrize(
    ("name", "value"), [("left", 10**6), ("right", 10**6), ("left", -1), ("right", 0), ("feature", 3), ("feature", -5)]
)
def test_trees_that_lead_outside_or_back_are_refused(family: str, name: str, value: int) -> None:
    content = _open(_dump(family))
    content.arrays[f"0.{name}"][_find_inner(content.arrays)] = value
    with pytest.raises(StoreError, match=r"not a usable model .*; fit it again"):
        load_models(to_bytes(content))


Change = Callable[[Any, Any], None]


def _set(name: str, value: object, *, model: int = -1) -> Change:
    """Another value or array; ``model`` is the place of the model in the file."""

    def change(record: Any, arrays: Any) -> None:
        place = model % len(record["models"])
        if isinstance(value, np.ndarray):
            assert f"{place}.{name}" in arrays
            arrays[f"{place}.{name}"] = value
        else:
            assert name in record["models"][place]["values"]
            record["models"][place]["values"][name] = value

    change.__name__ = name
    return change


def _declare(name: str, value: object, *, model: int = -1) -> Change:
    """Another family, number of columns or list of parts."""

    def change(record: Any, arrays: Any) -> None:
        record["models"][model][name] = value

    change.__name__ = name
    return change


def _forget(name: str) -> Change:
    def change(record: Any, arrays: Any) -> None:
        del arrays[f"{len(record['models']) - 1}.{name}"]

    change.__name__ = f"without_{name}"
    return change


_AXIS = {"log": False, "floor": 0.0, "offset": 0.0, "centre": 0.0, "scale": 1.0, "smooth": True, "levels": False}


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("boosting", _set("roots", np.array([10**6]))),
        ("boosting", _set("roots", np.array([-1]))),
        ("boosting", _set("value", np.array([1.0]))),
        ("boosting", _set("scalars", np.array([0.0, 1e9]))),
        ("boosting", _set("scalars", np.array([np.nan, 1.0]))),
        ("boosting", _forget("threshold")),
        ("boosting", _declare("columns", 1)),
        ("boosting", _declare("columns", 0)),
        ("boosting", _declare("columns", 2**31 - 1)),
        ("boosting", _declare("columns", "3")),
        ("boosting", _declare("family", "oracle")),
        ("boosting", _declare("family", "linear")),
        ("boosting", _declare("parts", [0])),
        ("boosting", _declare("parts", [-1])),
        ("tree", _declare("columns", None)),
        ("tree PCA", _declare("parts", [])),
        ("tree PCA", _declare("columns", 1, model=0)),
        ("tree PCA", _set("components", np.ones((1, 3)))),
        ("tree PCA", _set("components", np.ones((1000, 3)))),
        ("neural", _set("layers", 9)),
        ("neural", _set("layers", 10**9)),
        ("neural", _set("layers", True)),
        ("neural", _set("weights0", np.ones((3, 10**5)))),
        ("neural", _set("target_scale", "x")),
        ("linear", _set("slopes", np.ones((1000, 3)))),
        ("linear", _set("level", 10**400)),
        ("linear", _set("mean", np.ones((2, 3)))),
        ("linear", _set("mean", np.full(3, np.nan))),
        ("constant", _set("value", "x")),
        ("power", _set("slopes", np.ones(4))),
        ("law", _set("terms", [[[3, 1.0]]])),
        ("law", _set("terms", [[[-1, 1.0]]])),
        ("law", _set("terms", [[[None, 1.0]]])),
        ("law", _set("terms", [])),
        ("law", _set("terms", 3)),
        ("piecewise law", _declare("parts", [])),
        ("piecewise law", _set("switches", [[0, 1.0, -1, 0]])),
        ("piecewise law", _set("switches", [[0, 1.0, 0, 7]])),
        ("piecewise law", _set("switches", [[5, 1.0, 0, 0]])),
        ("law+trees", _declare("parts", [0, 0])),
        ("law+trees", _declare("parts", [1, 0])),
        ("gaussian process", _set("kernels", [])),
        ("gaussian process", _set("kernels", [{"axes": [_AXIS] * 3, "projections": 10**9}])),
        ("gaussian process", _set("kernels", [{"axes": [_AXIS] * 2, "projections": 0}])),
        ("gaussian process", _set("kernels", [{"axes": [{**_AXIS, "scale": None}] * 3, "projections": 0}])),
        ("gaussian process", _set("kernels", [{"axes": [{**_AXIS, "log": 1}] * 3, "projections": 0}])),
        ("gaussian process", _set("columns", np.array([0, 1, 7]))),
        ("gaussian process", _set("columns", np.array([0.5, 1, 2]))),
        ("gaussian process", _set("rows0", np.ones((2, 3)))),
        ("gaussian process", _set("whitening0", np.ones((2, 3)))),
        ("blend", _set("weights", [1.0, 2.0])),
        ("blend", _set("weights", ["x"])),
        ("blend", _declare("parts", [])),
        ("blend", _declare("parts", [1])),
    ],
)
def test_parts_that_lead_outside_are_refused(family: str, change: Change) -> None:
    content = _open(_dump(family))
    record, arrays = dict(content.record), dict(content.arrays)
    change(record, arrays)
    with pytest.raises(StoreError, match=r"not a usable model \(.*\); fit it again"):
        load_models(to_bytes(replace(content, record=record, arrays=arrays)))


@pytest.mark.parametrize("names", [{"elapsed_s": 1}, {"elapsed_s": -1}, {"elapsed_s": "0"}, {"elapsed_s": True}, [0]])
def test_names_of_models_that_are_not_there_are_refused(names: Any) -> None:
    content = _open(_dump("constant"))
    with pytest.raises(StoreError, match="not a usable model"):
        load_models(to_bytes(replace(content, record={**content.record, "names": names})))


def test_switches_that_meet_again_are_refused() -> None:
    """Else every one of them doubles the work of a prediction."""
    content = _open(_dump("piecewise law"))
    switches = [[0, 1.0, -2 - place, -2 - place] for place in range(60)]
    content.record["models"][-1]["values"]["switches"] = [*switches, [0, 1.0, 0, 0]]
    with pytest.raises(StoreError, match="switches that meet again"):
        load_models(to_bytes(content))


def test_blends_of_blends_are_refused() -> None:
    """Sixty of two of the one before would be 2**60 predictions, in a few kilobytes."""
    content = _open(_dump("blend"))
    (tree, blend) = content.record["models"]
    blends = [{**blend, "parts": [place, place], "values": {"weights": [0.5, 0.5]}} for place in range(60)]
    record = {"models": [tree, *blends], "names": {"elapsed_s": 60}}
    started = time.monotonic()
    with pytest.raises(StoreError, match="a blend with a BlendRunRegressor"):
        load_models(to_bytes(replace(content, record=record)))
    assert time.monotonic() - started < 5


def test_a_model_of_other_columns_than_the_encoder_has_is_refused() -> None:
    record = _build_record()
    models, facts = load_models(record.blob)
    for name in models:
        changed = {**models, name: _fit("boosting").fit(np.ones((40, 9)), np.ones(40))}
        with pytest.raises(StoreError, match=r"a model of 9 columns, where there are 3"):
            read_predictor(dump_models(changed, facts=facts), record.card)


def test_arrays_that_are_no_real_numbers_are_refused() -> None:
    content = ModelContent(kind=KIND, record={}, arrays={"a": np.ones(2, dtype="complex64")})
    with pytest.raises(StoreError, match="an array of complex64"):
        from_bytes(to_bytes(content), kinds=[KIND], source="", remedy="")


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), math.inf, math.nan, True, "1"], ids=lambda value: repr(value)[:5]
)
def test_numbers_too_large_for_a_float_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="instead of a number"):
        read_number(value)


def test_a_record_with_a_number_that_no_float_holds_is_refused() -> None:
    record = {"name": "x", "peak_flops": 10**400, "bandwidth_bytes": 1.0, "units": 1}
    with pytest.raises(ValueError, match="too large a number"):
        from_record(Device, record)


def _list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where numbers are in plain data."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(inner, dict | list):
            yield from _list_places(inner)
        elif isinstance(inner, int | float):
            yield value, key


@pytest.mark.parametrize("folder", ["steps", "distributed"])
@pytest.mark.parametrize("part", ["record", "facts"])
def test_files_with_numbers_that_no_float_holds_end_in_one_sentence(folder: str, part: str, tmp_path: Path) -> None:
    from foretell.distributed.consumption_predictor import load_consumption_model
    from foretell.steps.step_predictor import load_step_predictor

    load: Callable[[Path], object] = load_step_predictor if folder == "steps" else load_consumption_model
    source = sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[0]
    arrays, header = safetensors.numpy.load_file(source), _read_header(source)
    content, path, refused = json.loads(header[part]), tmp_path / "changed.safetensors", 0
    places = list(_list_places(content))
    for inside, key in places[:: max(1, len(places) // 40)]:
        before, inside[key] = inside[key], 10**400
        path.write_bytes(safetensors.numpy.save(arrays, metadata={**header, part: json.dumps(content)}))
        inside[key] = before
        try:
            load(path)
        except StoreError:
            refused += 1
    assert refused


@pytest.mark.parametrize("folder", ["steps", "distributed"])
def test_arithmetic_that_fails_while_a_file_is_read_ends_in_one_sentence(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretell.distributed import METHODS, get_method
    from foretell.distributed.consumption_predictor import load_consumption_model
    from foretell.steps.replay import ReplayModel
    from foretell.steps.serial_replay import SerialModel
    from foretell.steps.step_predictor import load_step_predictor

    def overflow(*_: object) -> None:
        raise OverflowError("int too large to convert to float")

    for kind in (ReplayModel, SerialModel, *map(get_method, METHODS)):
        monkeypatch.setattr(kind, "from_state", overflow)
    load: Callable[[Path], object] = load_step_predictor if folder == "steps" else load_consumption_model
    with pytest.raises(StoreError, match="int too large"):
        load(sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[0])
