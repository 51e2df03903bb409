"""Model files that somebody changed: predictions end in one sentence, never in a crash."""

import copy
import io
import json
import math
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVR

from foretell.core.devices import Device
from foretell.core.errors import ForetellError, StoreError
from foretell.core.model_checks import read_number
from foretell.core.serialization import from_record
from foretell.runtimes import model_bytes as archive
from foretell.runtimes.regressor_files import dump_models, load_models
from foretell.runtimes.regressors import REGRESSORS, build_blend
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.constant import ConstantRunRegressor
from foretell.runtimes.regressors.harp import TreeRunRegressor

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


def _write_archive(blob: bytes, changes: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """The same archive with other entries, or more of them."""
    source, made = zipfile.ZipFile(io.BytesIO(blob)), io.BytesIO()
    entries = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(made, "w", compression) as target:
        for name, data in {**entries, **changes}.items():
            target.writestr(name, data)
    return made.getvalue()


def _read_schema(blob: bytes) -> Any:
    return json.loads(zipfile.ZipFile(io.BytesIO(blob)).read("schema.json"))


def _change_schema(blob: bytes, schema: Any) -> bytes:
    return _write_archive(blob, {"schema.json": json.dumps(schema).encode()})


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every part of a schema."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _walk(inner)
    if isinstance(value, dict) and "__loader__" in value:
        yield value


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
    """Change arrays of every kind of model, and ask what is left."""
    draw = np.random.default_rng(seed)
    blobs = {name: dump_models({"elapsed_s": _fit(name)}, facts={}) for name in REGRESSORS}
    for blob in blobs.values():
        for _ in range(_TRIALS // 4):
            _predict(_change_archive(blob, draw), draw)


def fuzz_schemas(seed: int) -> None:
    """Change plain values, types and references of every kind of model, and ask what is left."""
    draw = np.random.default_rng(seed)
    blobs = {name: dump_models({"elapsed_s": _fit(name)}, facts={}) for name in REGRESSORS}
    for blob in blobs.values():
        schema = _read_schema(blob)
        for _ in range(_TRIALS // 4):
            changed = copy.deepcopy(schema)
            parts = list(_walk(changed))
            for part in parts if draw.random() < 0.8 else ():
                part.pop("__id__")  # so that a change in one place is not refused because of the others
            for place in draw.integers(len(parts), size=draw.integers(1, 4)):
                _change_part(parts[place], parts[draw.integers(len(parts))], draw)
            _predict(_change_schema(blob, changed), draw)


def _change_part(part: dict[str, Any], other: dict[str, Any], draw: np.random.Generator) -> None:
    kind = draw.integers(4)
    if part.get("__loader__") == "JsonNode" and kind < 2:
        part["content"] = json.dumps(_WORST[draw.integers(len(_WORST))])
    elif isinstance(part.get("content"), dict) and part["content"] and kind < 2:
        part["content"].pop(list(part["content"])[draw.integers(len(part["content"]))])
    elif kind == 2 and "__id__" in other:
        part["__id__"] = other["__id__"]
    else:
        taken = copy.deepcopy(other)
        part.clear()
        part.update(taken)


def fuzz_predictors(seed: int) -> None:
    """Change a whole predictor as it is stored, and predict by it."""
    import foretell
    from foretell.runtimes.predictor import Predictor

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
    from foretell.runtimes.predictor import Predictor

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

    from foretell.distributed.consumption_predictor import load_consumption_model
    from foretell.steps.step_predictor import load_step_predictor

    draw = np.random.default_rng(seed)
    path = Path(tempfile.mkdtemp()) / "changed.safetensors"
    for folder, load in (("steps", load_step_predictor), ("distributed", load_consumption_model)):
        for source in sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[:3]:
            arrays, said = safetensors.numpy.load_file(source), _read_header(source)
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


def _read_header(path: Path) -> dict[str, str]:
    import safetensors

    with safetensors.safe_open(path, "numpy") as file:
        return dict(file.metadata())


def _ask(predictor: Any) -> None:
    from foretell.steps.step_predictor import StepPredictor

    if isinstance(predictor, StepPredictor):
        for trees in getattr(predictor.model, "kernels_", getattr(predictor.model, "calls_", None)).trees_.values():
            trees.predict(np.ones((3, 40)))
        predictor.bound(1.0, level=0.9)
    else:
        predictor.model._correct(np.ones((2, 17)))


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


def _build_record(foretell: Any) -> Any:
    import pandas as pd

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
@pytest.mark.parametrize("name", ["fuzz_regressors", "fuzz_schemas", "fuzz_predictors", "fuzz_facts", "fuzz_files"])
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


@pytest.mark.parametrize("rows", [2, 80, 2100])  # a network of more than 2000 is fitted in another way
def test_every_kind_of_model_passes_as_it_is_fitted(rows: int) -> None:
    fitted = [_fit(name, rows) for name in REGRESSORS if rows < 1000 or name in _QUICK]
    blend = build_blend(fitted, np.ones(len(fitted)))
    for model in (*fitted, blend):
        models, _ = load_models(dump_models({"elapsed_s": model}, facts={}))
        load_models(dump_models(models, facts={}))


def _load_changed(name: str, change: Callable[[Any], None]) -> None:
    model = _fit(name)
    change(model)
    load_models(dump_models({"elapsed_s": model}, facts={}))


def _claim_columns(model: Any) -> None:
    predictor = model.model_._predictors[0][0]
    predictor.n_features_in_ = 2**31 - 1
    predictor.nodes["feature_idx"] = 2**30


def _claim_columns_within(model: Any) -> None:
    model.model_.n_features_in_ = 2**31 - 1
    model.model_._predictors[0][0].nodes["feature_idx"] = 2**30


def _forget_columns(model: Any) -> None:
    """The tree reads the third column, of which principal components leave one."""
    reduction = model.reduction_.steps[1][1]
    reduction.components_ = reduction.components_[:1]
    tree = model.model_.model_
    del model.model_.n_features_in_, tree.n_features_in_
    state = tree.tree_.__getstate__()
    state["nodes"]["feature"][state["nodes"]["left_child"] >= 0] = 2
    tree.tree_.__setstate__(state)


def _mark_categories(model: Any) -> None:
    """The bits of known categories are set in compiled code, wherever that is."""
    mapper = model.model_._bin_mapper
    mapper.is_categorical_[0] = 1
    mapper.bin_thresholds_[0] = np.array([255.0] * 8)


def _point_elsewhere(model: Any) -> None:
    model.model_._random_state.set_state({**model.model_._random_state.get_state(legacy=False), **_FAR_AWAY})


_FAR_AWAY = {"state": {"key": np.zeros(624, dtype=np.uint32), "pos": 10**9}}


def _set(path: str, value: object) -> Callable[[Any], None]:
    *way, name = path.split(".")

    def change(model: Any) -> None:
        for part in way:
            model = getattr(model, part)
        setattr(model, name, value)

    change.__name__ = path
    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("boosting", _claim_columns),
        ("boosting", _claim_columns_within),
        ("boosting", _mark_categories),
        ("boosting", _set("model_.n_trees_per_iteration_", 10**9)),
        ("boosting", _set("model_._in_fit", True)),
        ("boosting", _set("model_._predictors", [[3]])),
        ("boosting", _set("model_._loss.link", 3)),
        ("boosting", _set("n_features_in_", 2**31 - 1)),
        ("tree PCA", _forget_columns),
        ("tree PCA", _set("reduction_.steps", [])),
        ("tree", _set("n_features_in_", None)),
        ("tree", _set("predict", "hidden")),
        ("tree", _set("model_.n_outputs_", 2)),
        ("neural", _point_elsewhere),
        ("neural", _set("model_.n_layers_", 9)),
        ("neural", _set("model_.activation", "softmax")),
        ("neural", _set("model_.coefs_", [np.ones((3, 10**5)), np.ones((10**5, 1))])),
        ("linear", _set("model_.coef_", np.ones((1000, 3)))),
        ("linear", _set("model_.coef_", 10**400)),
        ("linear", _set("scaler_.mean_", np.ones((2, 3)))),
        ("linear PCA", _set("reduction_.memory", "/tmp")),
        ("constant", _set("value_", "x")),
        ("power", _set("slopes_", np.ones(4))),
        ("law", _set("terms_", (((3, 1.0),),))),
        ("law", _set("terms_", (((None, 1.0),),))),
        ("law", _set("terms_", ())),
        ("laws", _set("laws_", [])),
        ("laws", _set("switches_", [(0, 1.0, -1, 0)])),
        ("laws", _set("switches_", [(0, 1.0, 0, 7)])),
        ("law+trees", _set("rest_", ConstantRunRegressor())),
        ("process", _set("kernels_", [])),
        ("process", _set("columns_", np.array([0, 1, 7]))),
        ("blend", _set("weights", [1.0, 2.0])),
        ("blend", _set("members_", [3])),
    ],
)
def test_parts_that_lead_outside_are_refused(name: str, change: Callable[[Any], None]) -> None:
    with pytest.raises(StoreError, match="'foretell build' to make it anew"):
        _load_changed(name, change)


def test_switches_that_meet_again_are_refused() -> None:
    """Else every one of them doubles what is asked."""
    switches = [(0, 1.0, -2 - place, -2 - place) for place in range(60)]
    with pytest.raises(StoreError, match="'foretell build' to make it anew"):
        _load_changed("laws", _set("switches_", [*switches, (0, 1.0, 0, 0)]))


def test_other_models_of_scikit_learn_are_refused_before_they_are_made() -> None:
    """Each has compiled code of its own, which follows what the file says."""
    X = np.random.default_rng(0).uniform(1, 10, (20, 3))
    with pytest.raises(StoreError, match=r"SVR by ObjectNode, which Foretell does not write"):
        _load_changed("tree", _set("model_", SVR().fit(X, X[:, 0])))


def test_a_model_of_other_columns_than_the_encoder_has_is_refused() -> None:
    import foretell
    from foretell.runtimes.predictor import Predictor

    record = _build_record(foretell)
    models, facts = load_models(record.blob)
    for name in models:
        changed = {**models, name: _fit("boosting").fit(np.ones((40, 9)), np.ones(40))}
        with pytest.raises(StoreError, match=r"a model of 9 columns, where there are 3"):
            Predictor.load(dump_models(changed, facts=facts), record.card)


@pytest.fixture(scope="module")
def blob() -> bytes:
    return dump_models({"elapsed_s": _fit("linear")}, facts={})


def _list_arrays(blob: bytes) -> list[str]:
    return [name for name in zipfile.ZipFile(io.BytesIO(blob)).namelist() if name.endswith(".npy")]


def test_compressed_entries_are_refused_without_unpacking_them(blob: bytes) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(2**23))
    bomb = _write_archive(blob, {_list_arrays(blob)[0]: file.getvalue()}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 200_000
    del file
    tracemalloc.start()
    with pytest.raises(StoreError, match="compressed entries"):
        load_models(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23


def test_entries_that_are_the_same_bytes_are_refused(blob: bytes) -> None:
    made = io.BytesIO(blob)
    with zipfile.ZipFile(made, "a") as target:
        target.filelist += [target.filelist[0]] * 100
        target.comment = b"changed, so that the directory is written"
    with pytest.raises(StoreError, match="overlap"):
        load_models(made.getvalue())


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("MOST_BYTES", "bytes, more than 5"),
        ("MOST_SCHEMA_BYTES", "bytes of its schema, more than 5"),
        ("MOST_ENTRIES", "entries, more than 5"),
        ("MOST_VALUES", "values in its schema, more than 5"),
        ("DEEPEST", "more than 5 deep"),
    ],
)
def test_archives_have_limits(blob: bytes, limit: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load_models(blob)
    monkeypatch.setattr(archive, limit, 5)
    with pytest.raises(StoreError, match=message):
        load_models(blob)


def _list_of(content: list[Any], mark: int) -> dict[str, Any]:
    return {
        "__class__": "list",
        "__module__": "builtins",
        "__loader__": "ListNode",
        "content": content,
        "__id__": mark,
    }


def test_one_array_in_many_places_counts_many_times(blob: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, file = _read_schema(blob), io.BytesIO()
    np.save(file, np.zeros(2**14))
    array = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
    schema["content"]["more"] = _list_of([{**array, "file": "large.npy", "__id__": 2 + n} for n in range(100)], 1)
    monkeypatch.setattr(archive, "MOST_BYTES", 2**20)
    with pytest.raises(StoreError, match="bytes in arrays"):
        load_models(_write_archive(_change_schema(blob, schema), {"large.npy": file.getvalue()}))


def test_lists_of_the_same_lists_are_refused(blob: bytes) -> None:
    """A hundred levels of two are 2**100 lists, by ids in a few kilobytes."""
    schema = _read_schema(blob)
    inner = _list_of([], 1)
    for mark in range(2, 40):
        inner = _list_of([inner, _list_of([], mark - 1)], mark)
    schema["content"]["more"] = inner
    with pytest.raises(StoreError, match="different parts of one id"):
        load_models(_change_schema(blob, schema))


def test_a_schema_without_end_is_refused(blob: bytes) -> None:
    deep = b'{"content":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(StoreError, match="'foretell build' to make it anew"):
        load_models(_write_archive(blob, {"schema.json": deep}))


def test_a_random_generator_of_a_large_pool_is_refused() -> None:
    """It takes as long to make as the square of that."""
    blob = dump_models({"elapsed_s": _fit("boosting")}, facts={})
    schema = _read_schema(blob)
    (generator,) = (part for part in _walk(schema) if part["__loader__"] == "RandomGeneratorNode")
    pool = generator["content"]["seed_seq"]["content"]["pool_size"]
    pool.update(content="30000", __id__=1)
    with pytest.raises(StoreError, match="random generator"):
        load_models(_change_schema(blob, schema))


def test_objects_in_arrays_are_refused(blob: bytes) -> None:
    schema = _read_schema(blob)
    array = next(part for part in _walk(schema) if part["__loader__"] == "NdArrayNode")
    array.update(type="json", content=[], shape=[])
    with pytest.raises(StoreError, match="an array of objects"):
        load_models(_change_schema(blob, schema))


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), math.inf, math.nan, True, "1"], ids=lambda value: repr(value)[:5]
)
def test_what_no_float_holds_is_no_number(value: object) -> None:
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
    import safetensors.numpy

    from foretell.distributed.consumption_predictor import load_consumption_model
    from foretell.steps.step_predictor import load_step_predictor

    load: Callable[[Path], object] = load_step_predictor if folder == "steps" else load_consumption_model
    source = sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[0]
    arrays, said = safetensors.numpy.load_file(source), _read_header(source)
    content, path, refused = json.loads(said[part]), tmp_path / "changed.safetensors", 0
    places = list(_list_places(content))
    for inside, key in places[:: max(1, len(places) // 40)]:
        before, inside[key] = inside[key], 10**400
        path.write_bytes(safetensors.numpy.save(arrays, metadata={**said, part: json.dumps(content)}))
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
    from foretell.distributed.consumption_predictor import load_consumption_model
    from foretell.distributed.timeline_model import TimelineModel
    from foretell.steps.replay import ReplayModel
    from foretell.steps.serial_replay import SerialModel
    from foretell.steps.step_predictor import load_step_predictor

    def overflow(*_: object) -> None:
        raise OverflowError("int too large to convert to float")

    for kind in (ReplayModel, SerialModel, TimelineModel):
        monkeypatch.setattr(kind, "from_state", overflow)
    load: Callable[[Path], object] = load_step_predictor if folder == "steps" else load_consumption_model
    with pytest.raises(StoreError, match="int too large"):
        load(sorted((_SHIPPED / folder / "weights").glob("*.safetensors"))[0])
