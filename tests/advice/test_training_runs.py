"""Answers before and after a run, and which runs can be made here."""

from collections.abc import Callable

import pytest
from tests.advice.training_examples import WORKLOAD, build_site, build_training, estimate, search_site

from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_local_run import MadeRun
from foretell.advice.evidence_steps import PlacedStep, StepEvidence
from foretell.advice.measured_candidates import RunComparison
from foretell.advice.policy import choose_policy
from foretell.advice.training_answer import TriedTraining
from foretell.advice.training_plan import RecordedTraining
from foretell.core.errors import SpecError, WorkloadError
from foretell.core.run import Machine, Run, RunSpec, State

SITE = build_site()


class TestRunsHere:
    def test_run_on_a_machine_without_a_prediction_is_refused(self) -> None:
        tried = build_tried(Machine(cpu_model="Unknown 1", cores=4))
        with pytest.raises(SpecError, match="--then-run: found Unknown 1"):
            tried.answer_again(tried.answer(()), (), make=refuse)

    def test_run_that_is_worth_most_is_here_where_it_can_be(self) -> None:
        here = build_tried(Machine(gpu_model="Tesla V100-SXM2-16GB", gpus=1), predict=predict_first).answer(())
        assert here.next_run is not None
        assert here.next_run.candidate.here
        assert here.next_run.seconds <= here.job.startup.value + 0.26 * here.picked.time_s
        elsewhere = build_tried(Machine(cpu_model="Unknown 1", cores=4)).answer(())
        assert elsewhere.next_run is not None
        assert not elsewhere.next_run.candidate.here

    def test_a_run_that_fails_leaves_the_first_answer(self) -> None:
        tried = build_tried(Machine(gpu_model="Tesla V100-SXM2-16GB", gpus=1), predict=predict_first)
        first = tried.answer(())
        again = tried.answer_again(first, (), make=fail)
        assert again.picked is first.picked
        assert again.made is None
        assert [each.code for each in again.warnings if each not in first.warnings] == ["run-failed"]
        assert "no such file: data.bin" in again.warnings[0].text

    def test_both_answers_are_given(self) -> None:
        tried = build_tried(Machine(gpu_model="Tesla V100-SXM2-16GB", gpus=1), predict=predict_first)
        first = tried.answer(())
        run = StepEvidence(device="V100-16", batch=64, step_s=0.08, start_up_s=50.0)
        made = MadeRun(evidence=run, run=Run(spec=RunSpec(app="advise-net", parameters={}), state=State.COMPLETED))
        again = tried.answer_again(first, (), make=lambda *_: made)
        assert again.before is first
        assert again.made is made
        assert again.combined is not None
        assert again.combined.used == (run,)
        assert again.job.startup.value < 100.0
        assert again.job.startup.high / again.job.startup.low < 4.0


def refuse(*_: object) -> MadeRun:
    raise AssertionError("a run was made")


def fail(*_: object) -> MadeRun:
    raise WorkloadError("no such file: data.bin")


def predict_first(place: StepPlace) -> PlacedStep | None:
    return PlacedStep(place=place, estimate=estimate(0.064, spread=1.3)) if place.device == "V100-16" else None


def build_tried(machine: Machine, predict: Callable[[StepPlace], PlacedStep | None] = lambda _: None) -> TriedTraining:
    """What was tried of the usual training, on some machine."""
    return TriedTraining(
        job=build_training(),
        recorded=RecordedTraining(workload=WORKLOAD),
        sites=[SITE],
        found=[search_site(SITE)],
        policy=choose_policy(),
        comparison=RunComparison(predict=predict, batch=64),
        risk=0.05,
        level=0.9,
        machine=machine,
    )
