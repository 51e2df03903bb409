"""Consumption from Python: predictions, what would change, methods, and models fitted to measured trainings."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trained_models import know_core, save_jobs, save_law

import foretell
from foretell.core.errors import ImportDataError, NotEnoughRunsError, NotFoundError, SpecError, WorkloadError
from foretell.core.observation import Resource
from foretell.distributed import METHODS
from foretell.distributed.api import list_changes
from foretell.distributed.consumption import Change, ConsumptionPrediction, Setting, Strategy
from foretell.distributed.consumption_predictor import SHIPPED
from foretell.distributed.driple import DripleModel

NET = """
from torch import nn


def build_model(width: int = 256):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
"""
REDUCED = Setting(workers=2, link_bytes_per_s=2.5e7, device="T4")
SERVED = replace(REDUCED, strategy=Strategy.SERVERS, servers=1)
Predict = Callable[..., list[ConsumptionPrediction]]

HERE = Setting(workers=2, device="core")
QUICK = (2, 2, 8, "proportional", 100, 32, 0.003, 1, 0)  # epochs and hidden units of a quick driple


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("consumption")
    (folder / "net.py").write_text(NET)
    save_law(folder)
    return folder


@pytest.fixture(scope="module")
def predict(folder: Path) -> Predict:
    return partial(foretell.predict_consumption, f"{folder / 'net.py'}:build_model", ["32,64"], folder=folder)


# Predicting


def test_each_setting_and_batch_has_an_answer(predict: Predict) -> None:
    predicted = predict(settings=[REDUCED, SERVED], batches=[32, 64])
    assert [(one.workload.batch, one.setting.strategy.value) for one in predicted] == [
        (32, "allreduce"),
        (32, "ps"),
        (64, "allreduce"),
        (64, "ps"),
    ]
    assert all(one.gpu for one in predicted)


def test_the_batch_is_the_inputs_own_where_none_is_named(predict: Predict) -> None:
    (predicted,) = predict(settings=[REDUCED])
    assert predicted.workload.batch == 32
    assert predicted.examples_per_s == pytest.approx(64 / predicted.iteration.value)


def test_a_device_is_named_as_the_catalogue_does(predict: Predict) -> None:
    (predicted,) = predict(settings=[replace(REDUCED, device="tesla t4")])
    assert predicted.setting.device == "T4"


def test_a_device_known_by_its_figures_only_has_a_warning(predict: Predict) -> None:
    (predicted,) = predict(settings=[replace(REDUCED, device="Gaudi3")])
    (usual,) = predict(settings=[REDUCED])
    assert any("Times of Gaudi3 were not measured" in warning.text for warning in predicted.warnings)
    assert predicted.iteration.high / predicted.iteration.value >= usual.iteration.high / usual.iteration.value


def test_one_worker_without_a_link_has_no_communication(predict: Predict) -> None:
    (predicted,) = predict(settings=[Setting(workers=1, device="T4")])
    assert set(predicted.cycles) <= {Resource.COMPUTE}
    assert any("no communication" in warning.text for warning in predicted.warnings)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (replace(REDUCED, workers=0), "workers: found 0"),
        (replace(REDUCED, servers=1), "servers: found 1; expected none for all-reduce"),
        (replace(SERVED, servers=0), "servers: found 0; expected 1 or more"),
        (replace(REDUCED, synchronous=False), "asynchronous: found all-reduce"),
        (replace(REDUCED, link_bytes_per_s=0.0), "link: found 0.0"),
        (replace(REDUCED, link_bytes_per_s=float("nan")), "link: found nan"),
        (replace(REDUCED, workers=-1, servers=2), "2 mistakes"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(predict: Predict, setting: Setting, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        predict(settings=[setting])


def test_a_strategy_may_be_named() -> None:
    assert Setting(strategy="allreduce") == Setting()  # type: ignore[arg-type]
    assert Setting(strategy="ps", servers=1).strategy is Strategy.SERVERS  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"strategy: found 'ring'; expected 'allreduce' or 'ps'"):
        Setting(strategy="ring")  # type: ignore[arg-type]


@pytest.mark.parametrize(("strategy", "servers"), [("allreduce", 0), ("ps", 1)])
def test_a_setting_with_a_named_strategy_is_predicted(predict: Predict, strategy: str, servers: int) -> None:
    (named,) = predict(settings=[replace(REDUCED, strategy=strategy, servers=servers)])  # type: ignore[arg-type]
    (usual,) = predict(settings=[replace(REDUCED, strategy=Strategy(strategy), servers=servers)])
    assert named == usual or named.iteration == usual.iteration


@pytest.mark.parametrize("device", ["A100", "rtx 4090", "MI300X", "Gaudi3", "B200"])
def test_every_device_of_the_catalogue_has_an_answer(predict: Predict, device: str) -> None:
    (predicted,) = predict(settings=[replace(REDUCED, device=device)])
    assert predicted.gpu
    assert 0 < predicted.iteration.low < predicted.iteration.high


def test_a_device_of_ones_own_has_an_answer(predict: Predict, tmp_path: Path) -> None:
    path = tmp_path / "slow-t4.toml"
    path.write_text('like = "T4"\nfp32 = 8e10\nbandwidth = 3e9\n')
    (predicted,) = predict(settings=[replace(REDUCED, device=str(path))])
    (usual,) = predict(settings=[REDUCED])
    assert predicted.setting.device == "slow-t4"
    assert predicted.compute_s > usual.compute_s


def test_a_precision_that_the_device_lacks_is_refused(predict: Predict) -> None:
    options = foretell.StepOptions(precision="bf16")
    with pytest.raises(SpecError, match=r"bf16 on T4; expected fp32 or fp16 there"):
        predict(settings=[REDUCED], options=options)
    assert predict(settings=[replace(REDUCED, device="A100")], options=options)


def test_unknown_names_are_refused(predict: Predict) -> None:
    with pytest.raises(NotFoundError, match=r"'T9'\. Did you mean T4"):
        predict(settings=[replace(REDUCED, device="T9")])
    with pytest.raises(NotFoundError, match="'nosuch'"):
        predict(settings=[REDUCED], model="nosuch")


# What would change


def test_one_thing_changes_at_a_time_and_the_setting_itself_is_included() -> None:
    changes = list_changes(SERVED, 64)
    assert list(changes) == [Change.LINK, Change.WORKERS, Change.SERVERS, Change.BATCH]
    for pairs in changes.values():
        assert pairs.count((SERVED, 64)) == 1
        assert len(set(pairs)) == len(pairs)
    assert [setting.workers for setting, _ in changes[Change.WORKERS]] == [1, 2, 4, 8]
    assert [setting.servers for setting, _ in changes[Change.SERVERS]] == [1, 2]
    assert [batch for _, batch in changes[Change.BATCH]] == [32, 64, 128, 256]


def test_without_a_link_no_other_link_is_predicted() -> None:
    assert list(list_changes(Setting(workers=2), 1)) == [Change.WORKERS, Change.BATCH]


def test_a_faster_link_never_makes_it_slower(folder: Path) -> None:
    source = f"{folder / 'net.py'}:build_model"
    outlook = foretell.explore_consumption(source, ["32,64"], setting=REDUCED, folder=folder)
    times = [predicted.iteration.value for predicted in outlook.others[Change.LINK]]
    assert times == sorted(times, reverse=True)
    assert outlook.asked in outlook.others[Change.LINK]
    without = foretell.explore_consumption(source, ["32,64"], setting=REDUCED, curves=False, folder=folder)
    assert not without.shown
    assert without.limit == outlook.limit


GRID = [
    replace(setting, device=device, link_bytes_per_s=link, workers=workers)
    for setting in (REDUCED, SERVED, replace(SERVED, synchronous=False))
    for device in ("EPYC core", "T4")
    for link in (2.5e7, 5e7, 1e8, 4e8, 1.6e9, 6.4e9)
    for workers in (1, 2, 4)
]


@pytest.mark.parametrize("batch", [1, 32, 1024])
def test_predictions_are_consistent(predict: Predict, batch: int) -> None:
    predicted = predict(settings=GRID, batches=[batch])
    for each in predicted:
        whole, sent = each.iteration.value, each.cycles.get(Resource.TRANSMIT)
        assert each.compute_s + each.exposed_s == pytest.approx(whole)
        assert (each.exposed_s > 0) <= each.setting.communicates
        assert each.setting.strategy is Strategy.ALLREDUCE or each.exposed_s > 0  # nothing hides it
        for cycle in each.cycles.values():
            assert cycle.burst_s.value + cycle.idle_s.value == pytest.approx(whole)
        if sent is not None and not each.outside:
            moved = sent.burst_s.value * sent.burst_amount.value
            assert moved == pytest.approx(4 * each.workload.parameters, rel=0.5)
    links: dict[Setting, list[float]] = {}
    for each in predicted:
        key = replace(each.setting, link_bytes_per_s=None)
        links.setdefault(key, []).append(each.iteration.value)
    assert all(times == sorted(times, reverse=True) for times in links.values())


def test_a_model_of_one_batch_has_no_other_batches(folder: Path) -> None:
    (folder / "fixed.py").write_text(
        "from torch import nn\n\n\n"
        "class Fixed(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.view(32, 64))\n\n\n"
        "def build():\n    return Fixed(64, 8)\n"
    )
    source = f"{folder / 'fixed.py'}:build"
    outlook = foretell.explore_consumption(source, ["32,64"], setting=REDUCED, folder=folder)
    assert Change.BATCH not in outlook.others
    assert Change.LINK in outlook.others
    with pytest.raises(WorkloadError):
        foretell.explore_consumption(source, ["32,64"], setting=REDUCED, batch=16, folder=folder)


# Models fitted to measured trainings


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four small trainings on a core that is known by its figures."""
    know_core(monkeypatch)
    monkeypatch.setattr(DripleModel.__init__, "__defaults__", QUICK)
    (tmp_path / "net.py").write_text(NET)
    return save_jobs(tmp_path / "jobs.jsonl", [HERE])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_fitted_and_predicts(jobs: Path, tmp_path: Path, method: str) -> None:
    learned = foretell.learn_consumption(jobs, name="lab", method=method, scratch=True, folder=tmp_path)
    assert (learned.jobs, learned.method, learned.transferred_from, learned.disturbed) == (4, method, None, 0)
    assert learned.path == tmp_path / "consumption" / "lab.safetensors"
    assert learned.settings == (HERE,)
    assert Resource.TRANSMIT in learned.resources
    predict = partial(
        foretell.predict_consumption, f"{tmp_path / 'net.py'}:build_model", ["32,64"], settings=[HERE], folder=tmp_path
    )
    (prediction,) = predict(model="lab")
    assert predict(model="lab", method=method) == [prediction]
    assert np.isfinite([prediction.iteration.low, prediction.iteration.high]).all()
    assert prediction.iteration.low <= prediction.iteration.value <= prediction.iteration.high
    other = next(name for name in METHODS if name != method)
    with pytest.raises(SpecError, match=f"lab, fitted by {method}; expected --method {method}"):
        predict(model="lab", method=other)


def test_the_default_is_transferred_from_the_model_that_ships(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_law(tmp_path)
    monkeypatch.setattr("foretell.distributed.consumption_predictor._find_shipped", lambda: tmp_path / "consumption")
    learned = foretell.learn_consumption(jobs, folder=tmp_path)
    assert learned.transferred_from == "shared"
    assert learned.path.name == "here.safetensors"


def test_driple_is_transferred_to_another_setting(jobs: Path, tmp_path: Path) -> None:
    foretell.learn_consumption(jobs, name="first", method="driple", folder=tmp_path)
    elsewhere = replace(HERE, workers=4)
    source = f"{tmp_path / 'net.py'}:build_model"
    predict = partial(foretell.predict_consumption, source, ["32,64"], settings=[elsewhere], folder=tmp_path)
    with pytest.raises(NotFoundError, match=r"4 workers.*--method driple --from"):
        predict(model="first")
    others = save_jobs(tmp_path / "others.jsonl", [elsewhere])
    learned = foretell.learn_consumption(others, name="second", method="driple", base="first", folder=tmp_path)
    assert learned.transferred_from == "first"
    (prediction,) = predict(model="second")
    assert prediction.iteration.value > 0


def test_what_driple_cannot_predict_is_left_out_of_the_changes(jobs: Path, tmp_path: Path) -> None:
    foretell.learn_consumption(jobs, name="gnn", method="driple", folder=tmp_path)
    source = f"{tmp_path / 'net.py'}:build_model"
    outlook = foretell.explore_consumption(source, ["32,64"], setting=HERE, model="gnn", folder=tmp_path)
    assert list(outlook.others) == [Change.BATCH]


@pytest.mark.parametrize("method", SHIPPED)
def test_a_method_with_a_shipped_model_predicts_at_once(predict: Predict, method: str) -> None:
    setting = Setting(workers=2, link_bytes_per_s=2.5e7, device="EPYC core")
    (prediction,) = predict(settings=[setting], method=method)
    assert not [warning for warning in prediction.warnings if warning.data.get("name") != "iteration_s"]
    assert {Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE} == set(prediction.cycles)
    assert 0 < prediction.iteration.low <= prediction.iteration.value <= prediction.iteration.high


def test_a_method_without_a_model_says_how_to_fit_one(predict: Predict) -> None:
    with pytest.raises(
        NotFoundError, match=r"'driple'.*learn --jobs FILE --method driple --name NAME', then pass --model"
    ):
        predict(settings=[REDUCED], method="driple")
    with pytest.raises(NotFoundError, match=r"'magic'\. Known: bandwidth, driple, timeline, totals"):
        predict(settings=[REDUCED], method="magic")


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"name": "a/b"}, SpecError, "name: found 'a/b'"),
        ({"method": "magic"}, NotFoundError, "'magic'"),
        ({"base": "nosuch"}, NotFoundError, "'nosuch'"),
        ({"base": "shared", "scratch": True}, SpecError, "with --scratch"),
        ({"base": "shared", "method": "totals"}, SpecError, "totals, which has no transfer"),
        ({"base": "shared", "method": "driple"}, SpecError, "shared, fitted by timeline"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(
    jobs: Path, tmp_path: Path, options: dict[str, Any], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        foretell.learn_consumption(jobs, folder=tmp_path / "kept", **options)
    assert not (tmp_path / "kept").exists()


def test_too_few_jobs_are_refused(jobs: Path, tmp_path: Path) -> None:
    few = save_jobs(tmp_path / "few.jsonl", [HERE], jobs=2)
    with pytest.raises(NotEnoughRunsError):
        foretell.learn_consumption(few, scratch=True, folder=tmp_path)
    none = save_jobs(tmp_path / "none.jsonl", jobs=0)
    with pytest.raises(ImportDataError, match="no measured trainings"):
        foretell.learn_consumption(none, scratch=True, folder=tmp_path)


def test_jobs_of_an_unknown_device_are_refused(jobs: Path, tmp_path: Path) -> None:
    strange = save_jobs(tmp_path / "strange.jsonl", [replace(HERE, device="T9")])
    with pytest.raises(NotFoundError, match=r"'T9'\. Did you mean T4"):
        foretell.learn_consumption(strange, scratch=True, folder=tmp_path)
