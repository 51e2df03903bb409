"""The published Driple keeps the promises of a model, is built as described, and transfers as described."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contracts.consumption import SETTINGS, ConsumptionContract, build_jobs

from foretell.core.errors import MissingExtraError, NotFoundError, StoreError
from foretell.core.model_files import load_model, save_model
from foretell.core.observation import Metric, Resource
from foretell.distributed._base import TARGETS, ConsumptionModel
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Setting
from foretell.distributed.driple import DripleModel
from foretell.steps.torch_seed import torch_seed

torch = pytest.importorskip("torch")

from foretell.distributed import driple_network  # noqa: E402 - it needs PyTorch

pytestmark = pytest.mark.slow

NEW = replace(SETTINGS[0], link_bytes_per_s=1e8, workers=4)


def make_model(**options: object) -> DripleModel:
    return DripleModel(**{"epochs": 5, "transfer_epochs": 3, "hidden": 16, "batch": 9, **options})  # type: ignore[arg-type]


def learn(*settings: Setting, **options: object) -> DripleModel:
    return make_model(**options).fit(*build_jobs(settings))


class TestDriple(ConsumptionContract):
    @pytest.fixture
    def model(self) -> ConsumptionModel:
        return make_model()

    def test_fitted_jobs_are_reproduced(self, model: ConsumptionModel) -> None:
        super().test_fitted_jobs_are_reproduced(make_model(epochs=120, hidden=32))


class TestNetwork:
    def test_layers_are_repeated_for_half_of_the_nodes_with_a_gru_after_each(self) -> None:
        network = driple_network.build(3, 8, 12)
        calls: dict[str, int] = {}
        for name in ("first", "repeated", "gate", "reader"):
            getattr(network, name).register_forward_hook(
                lambda *_, name=name: calls.update({name: calls.get(name, 0) + 1})
            )
        predicted = network(torch.rand(4, 10, 3), torch.eye(10).repeat(4, 1, 1))
        assert predicted.shape == (4, 12)
        assert calls == {"first": 1, "repeated": 5, "gate": 6, "reader": 10}
        assert [type(each).__name__ for each in network.perceptron].count("Linear") == 3

    def test_the_order_of_nodes_does_not_matter(self) -> None:
        features, edges = np.random.default_rng(0).random((6, 3)), [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)]
        order = [3, 1, 5, 0, 2, 4]
        places = {old: new for new, old in enumerate(order)}
        moved = [(places[begin], places[end]) for begin, end in edges]
        with torch_seed(seed=1):
            network = driple_network.build(3, 8, 12)
        one = driple_network.predict(network, driple_network.build_batch([features], [edges], np.empty((0, 0))))
        other = driple_network.predict(
            network, driple_network.build_batch([features[order]], [moved], np.empty((0, 0)))
        )
        np.testing.assert_allclose(one, other, rtol=1e-5)

    def test_neighbours_count_by_the_roots_of_their_degrees(self) -> None:
        batch = driple_network.build_batch([np.ones((3, 3))], [[(0, 1), (1, 2)]], np.empty((0, 0)))
        np.testing.assert_allclose(
            batch.adjacency[0],
            [[1 / 2, 6**-0.5, 0], [6**-0.5, 1 / 3, 6**-0.5], [0, 6**-0.5, 1 / 2]],
            rtol=1e-6,
        )

    def test_targets_that_were_not_measured_have_no_effect(self) -> None:
        def train(*targets: list[float]) -> driple_network.Weights:
            batches = [driple_network.build_batch([np.ones((4, 3))], [[(0, 1)]], np.array([each])) for each in targets]
            with torch_seed(seed=0):
                return driple_network.train(driple_network.build(3, 8, 2), batches, epochs=30, learning_rate=0.01)

        nothing = [np.nan, np.nan]
        some, with_nothing, all_known = train([0.5, np.nan]), train([0.5, np.nan], nothing), train([0.5, 0.5])
        for name, values in some.items():
            np.testing.assert_array_equal(values, with_nothing[name])
        last = "perceptron.4.bias"
        assert some[last][1] != all_known[last][1]
        network = driple_network.load(some, features=3, hidden=8, targets=2)
        predicted = driple_network.predict(
            network, driple_network.build_batch([np.ones((4, 3))], [[(0, 1)]], np.empty((0, 0)))
        )
        assert predicted[0, 0] == pytest.approx(0.5, abs=0.1)


class TestSettings:
    def test_each_has_a_network_of_its_own(self) -> None:
        model = learn(*SETTINGS)
        one, other = (model.settings_[setting].weights["first.weight"] for setting in SETTINGS)
        assert not np.array_equal(one, other)
        cases, jobs = build_jobs()
        alone = make_model().fit(cases[len(cases) // 2 :], jobs[len(jobs) // 2 :])
        np.testing.assert_array_equal(alone.settings_[SETTINGS[1]].weights["first.weight"], other)

    def test_a_setting_that_was_not_fitted_is_refused_with_the_known_ones(self) -> None:
        model = learn(SETTINGS[0])
        cases, _ = build_jobs([NEW])
        with pytest.raises(NotFoundError, match=r"4 workers, 800 Mb/s, made up.*Known: .*2 workers, 200 Mb/s"):
            model.predict(cases)

    @pytest.mark.parametrize("grouping", ["proportional", "uniform", "none"])
    def test_groupings(self, grouping: str) -> None:
        model = learn(SETTINGS[0], grouping=grouping, groups=5, epochs=2)
        cases, _ = build_jobs(SETTINGS[:1])
        assert len(model.predict(cases)) == len(cases)

    def test_an_iteration_is_what_bursts_and_idles_add_up_to(self) -> None:
        (predicted,) = learn(SETTINGS[0]).predict(build_jobs(SETTINGS[:1])[0][:1])
        sums = [
            predicted.metrics[each, Metric.BURST] + predicted.metrics[each, Metric.IDLE]
            for each in _find_resources(predicted)
        ]
        assert predicted.iteration_s == pytest.approx(np.mean(sums))
        assert predicted.compute_s + predicted.exposed_s == pytest.approx(predicted.iteration_s)

    def test_without_any_cycle_only_operator_times_are_predicted(self) -> None:
        cases, jobs = build_jobs(SETTINGS[:1])
        predicted = make_model().fit(cases, [replace(job, cycles={}) for job in jobs]).predict(cases)
        assert all(not answer.metrics for answer in predicted)
        assert predicted[0].iteration_s == pytest.approx(cases[0].operator_s.sum())


def _find_resources(predicted: Consumed) -> set[Resource]:
    return {resource for resource, _ in predicted.metrics}


def few(setting: Setting, count: int = 4) -> tuple[list[Case], list[MeasuredJob]]:
    cases, jobs = build_jobs([setting])
    return cases[:count], jobs[:count]


class TestTransfer:
    def test_it_trains_half_of_the_repetitions_and_the_last_layers_and_nothing_else(self) -> None:
        model = learn(SETTINGS[0])
        before = model.settings_[SETTINGS[0]].weights
        after = model.transfer(*few(NEW)).settings_[NEW].weights
        kept = {name for name in before if np.array_equal(before[name], after[name])}
        assert kept == {name for name in before if not name.startswith("perceptron.")}
        assert after.keys() - before.keys() == {"tuned.weight", "tuned.bias"}
        for name in ("weight", "bias"):
            assert not np.array_equal(after[f"tuned.{name}"], before[f"repeated.{name}"])
        assert all(not np.array_equal(before[name], after[name]) for name in before.keys() - kept)

    def test_the_second_half_of_the_repetitions_is_the_one_of_its_own(self) -> None:
        network = driple_network.prepare_transfer(driple_network.build(3, 8, 12))
        order: list[str] = []
        for name in ("repeated", "tuned"):
            getattr(network, name).register_forward_hook(lambda *_, name=name: order.append(name))
        network(torch.rand(1, 10, 3), torch.eye(10)[None])
        assert order == ["repeated"] * 2 + ["tuned"] * 3
        before = driple_network.build(3, 8, 12)
        split = driple_network.prepare_transfer(before)
        given = torch.rand(2, 9, 3), torch.eye(9).repeat(2, 1, 1)
        split.tuned, tuned = None, split.tuned
        alike = split(*given)
        split.tuned = tuned
        torch.testing.assert_close(split(*given), alike)  # before it has learned, nothing has changed

    def test_the_model_it_came_from_stays_as_it_was(self) -> None:
        model = learn(SETTINGS[0])
        cases, _ = build_jobs(SETTINGS[:1])
        before = model.predict(cases)
        other = model.transfer(*few(NEW))
        assert model.predict(cases) == other.predict(cases) == before
        assert set(model.settings_) == {SETTINGS[0]}
        assert len(other.predict(few(NEW)[0])) == 4

    def test_a_transferred_model_can_be_transferred_again(self) -> None:
        once = learn(SETTINGS[0]).transfer(*few(NEW))
        twice = once.transfer(*few(SETTINGS[1]), source=NEW)
        assert "tuned.weight" in twice.settings_[SETTINGS[1]].weights

    def test_the_setting_of_most_jobs_is_where_it_comes_from(self) -> None:
        one, two = build_jobs(SETTINGS[:1]), few(SETTINGS[1], 3)
        model = make_model().fit(one[0] + two[0], one[1] + two[1])
        np.testing.assert_array_equal(
            model.transfer(*few(NEW)).settings_[NEW].weights["first.weight"],
            model.settings_[SETTINGS[0]].weights["first.weight"],
        )

    def test_a_source_it_does_not_know_is_refused(self) -> None:
        with pytest.raises(NotFoundError, match="800 Mb/s"):
            learn(SETTINGS[0]).transfer(*few(NEW), source=NEW)


class TestFiles:
    def test_saved_and_loaded_it_predicts_the_same(self, tmp_path: Path) -> None:
        model = learn(*SETTINGS).transfer(*few(NEW))
        save_model(tmp_path / "driple.safetensors", model, {"jobs": 18})
        again, facts = load_model(tmp_path / "driple.safetensors", [DripleModel], remedy="fit it again")
        cases = build_jobs(SETTINGS)[0] + few(NEW)[0]
        assert facts == {"jobs": 18}
        assert again.predict(cases) == model.predict(cases)
        assert again.transfer(*few(SETTINGS[1])).settings_.keys() == model.settings_.keys()

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("hidden", 10**6, "1000000 hidden units"),
            ("hidden", 1e9, "instead of a count"),
            ("hidden", "wide", "instead of a number"),
            ("batch", -1, "instead of a count"),
        ],
    )
    def test_changed_options_are_refused(self, name: str, value: object, expected: str) -> None:
        record, arrays = learn(SETTINGS[0]).to_state()
        record["options"][name] = value
        with pytest.raises(ValueError, match=expected):
            DripleModel.from_state(record, arrays)

    @pytest.mark.parametrize(
        ("name", "change", "expected"),
        [
            ("first.weight", lambda values: values * np.nan, "not finite"),
            ("repeated.bias", lambda values: values[:-1], "another network"),
            ("gate.bias_hh", lambda values: values.astype(int), "not finite"),
        ],
    )
    def test_changed_weights_are_refused(self, name: str, change: Callable[[Any], Any], expected: str) -> None:
        record, arrays = learn(SETTINGS[0]).to_state()
        arrays[f"0/weights/{name}"] = change(arrays[f"0/weights/{name}"])
        with pytest.raises(ValueError, match=expected):
            DripleModel.from_state(record, arrays)

    @pytest.mark.parametrize("content", [b"", b"no model", b"\xff" * 100])
    def test_another_file_is_refused(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(StoreError, match="fit it again"):
            load_model(tmp_path / "file", [DripleModel], remedy="fit it again")
        with pytest.raises(StoreError, match="fit it again"):
            load_model(tmp_path / "missing", [DripleModel], remedy="fit it again")


def test_torch_is_left_as_it_was() -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    learn(SETTINGS[0])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_targets_are_twelve() -> None:
    assert len(TARGETS) == 12


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foretell.distributed.driple_network", None)
    monkeypatch.delattr("foretell.distributed.driple_network", raising=False)
    with pytest.raises(MissingExtraError, match=r"foretell\[torch\]"):
        learn(SETTINGS[0])
