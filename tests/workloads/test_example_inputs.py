"""Inputs of all forms have examples, and steer the code of a model."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.workloads import input_models
from tests.workloads.test_capture import kinds, read

from foretell.core.errors import WorkloadError
from foretell.core.workload import StepPhase
from foretell.workloads.api import read_workload
from foretell.workloads.example_inputs import build_example_input, seeded
from foretell.workloads.known_tensors import is_known
from foretell.workloads.step_options import parse_input

FILE = Path(input_models.__file__)
IMAGES = ("batch.image=6,3,2,2", "batch.label=6:int64:4")


class TestExamples:
    def test_integers_are_drawn_below_their_limit_the_same_each_time(self) -> None:
        first, again = (build_example_input(parse_input("ids=200:int64:10")) for _ in range(2))
        assert torch.equal(first, again)
        assert set(first.tolist()) == set(range(10))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("attention_mask=2,3:int64", [[1, 1, 1]] * 2),
            ("batch.pixel_mask=2:bool", [True, True]),
            ("input_lengths=2:int64:7", [7, 7]),
            ("offsets=4:int64:20", [0, 5, 10, 15]),
            ("return_loss=true", True),
        ],
    )
    def test_names_say_what_values_are_likely(self, text: str, expected: object) -> None:
        found = build_example_input(parse_input(text))
        assert (found.tolist() if isinstance(found, torch.Tensor) else found) == expected

    def test_numbers_have_no_data(self) -> None:
        assert not is_known(build_example_input(parse_input("2,3")))

    def test_draws_within_are_repeatable_and_do_not_change_those_after(self) -> None:
        def draw() -> list[float]:
            return [random.random(), float(np.random.rand()), float(torch.rand(()))]

        with seeded():
            first = draw()
        before = random.getstate(), torch.get_rng_state()
        with seeded():
            assert draw() == first
        assert random.getstate() == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])


class TestForms:
    @pytest.mark.parametrize("model", [input_models.Classifier, input_models.Typed])
    def test_a_dictionary_and_a_dataclass_are_given_by_their_parts(self, model: type[torch.nn.Module]) -> None:
        workload = read(model(), *IMAGES)
        assert workload.batch == 6
        assert "cross_entropy" in kinds(workload, StepPhase.FORWARD)

    def test_lists_of_dictionaries_are_given_by_position(self) -> None:
        texts = [f"images.{n}=3,2,2" for n in range(2)]
        texts += [f"targets.{n}.{part}" for n in range(2) for part in ("boxes=5,4", "labels=5:int64:4")]
        workload = read(input_models.Detector(), *texts)
        assert any("positive" not in note and "assumed to be False" in note for note in workload.notes)
        assert Counter(kinds(workload, StepPhase.FORWARD))["cross_entropy"] == 1

    def test_a_model_is_asked_for_its_own_loss(self) -> None:
        asked = kinds(read(input_models.Contrast(), "6,12"), StepPhase.FORWARD)
        assert "mse_loss" in asked
        given = kinds(read(input_models.Contrast(), "x=6,12", "return_loss=false"), StepPhase.FORWARD)
        assert given == ["linear", "cross_entropy"]

    @pytest.mark.parametrize(("factory", "batch"), [("Classifier", 5), ("build_pair", 6)])
    def test_example_inputs_come_from_the_file_or_the_factory(self, factory: str, batch: int) -> None:
        assert read_workload(f"{FILE}:{factory}").batch == batch
        assert read_workload(f"{FILE}:{factory}", batch=9).batch == 9


class TestSteering:
    def test_masks_labels_draws_and_checks_steer_the_code(self) -> None:
        workload = read(
            input_models.Steered(), "input_ids=4,8:int64:50", "attention_mask=4,8:int64", "labels=4,8:int64:4"
        )
        counts = Counter(kinds(workload, StepPhase.FORWARD))
        assert 0 < counts["__add__"] < 8
        assert counts["clamp"] == 0
        (note,) = workload.notes
        assert "if not torch.isfinite(hidden).all():" in note
        assert "assumed to be True" in note

    def test_checks_of_values_work(self) -> None:
        with pytest.raises(WorkloadError, match="labels must be below 4, not"):
            read(input_models.Steered(), "input_ids=4,8:int64:50", "attention_mask=4,8:int64", "labels=4,8:int64:40")

    @pytest.mark.parametrize("implementation", ["foreach", "for-loop"])
    def test_a_recommender_updates_only_the_rows_it_read(self, implementation: str) -> None:
        model = input_models.Recommender()
        workload = read(
            model, "dense=32,13", "indices=3,320:int64:100000", "offsets=3,32:int64:320", implementation=implementation
        )
        counts = Counter(kinds(workload, StepPhase.FORWARD))
        assert (counts["embedding_bag"], counts["bmm"]) == (3, 1)
        bags = [each.bytes_moved for each in workload.operators if each.kind == "embedding_bag"]
        assert max(bags) < 4 * 320 * 16 * 3  # a whole table has 6.4 MB
        update = sum(each.bytes_moved for each in workload.operators if each.phase is StepPhase.UPDATE)
        dense = sum(each.numel() for each in (*model.bottom.parameters(), *model.top.parameters()))
        assert update < 4 * (8 * dense + 3 * 320 * 16 * 10)  # far less than the tables: 19.2 MB
        assert [each.bytes_ for each in workload.gradients]


class TestFailures:
    @pytest.mark.parametrize(
        ("way", "text", "remedy"),
        [
            ("assert", r"assert x.shape\[1\] == 5.*AssertionError: five columns", "Check --input"),
            ("divide", "ZeroDivisionError", "Check --input"),
            ("file", "FileNotFoundError.*no-such-file.txt", "Files are looked for from the current folder"),
            ("exit", "SystemExit: enough", "Check --input"),
            ("other", "'raise LookupError': LookupError", "Check --input"),
        ],
    )
    def test_every_failure_is_one_error_with_its_line(self, way: str, text: str, remedy: str) -> None:
        with pytest.raises(WorkloadError, match=text) as error:
            read(input_models.Failing(way), "6,12")
        assert "input_models.py:" in str(error.value)
        assert remedy in str(error.value)
        assert "\n" not in str(error.value)

    def test_code_does_not_see_the_arguments_of_this_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.argv", ["foretell", "workload", "show"])
        assert read_workload(f"{FILE}:build_with_arguments").batch == 5

    def test_a_function_that_trains_is_not_called(self) -> None:
        with pytest.raises(WorkloadError, match=r"foretell workload show -- python .*input_models.py"):
            read_workload(f"{FILE}:main")
