import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.advice.training_examples import WORKLOAD, build_training, estimate

from foretell.advice.training_offers import find_time_risk, find_walltime
from foretell.advice.training_plan import STARTUP_S, RecordedTraining, TrainingPlan, build_job
from foretell.core.errors import SpecError
from foretell.workloads.scripts.script_facts import ScriptFacts

STEP = estimate(0.02, spread=2.0)


class TestTimeOfAJob:
    def test_it_is_the_sum_of_its_parts(self) -> None:
        job = build_training(evaluation_share=0.1, evaluation_s=3.0, checkpoints=5, checkpoint_s=2.0)
        time = job.predict(STEP, gpus=1)
        # 10 epochs of 1,000 steps of 20 ms: 200 s; a tenth of that and 3 s an epoch to evaluate; 5 checkpoints of 2 s
        assert time.steps == 10_000
        assert {name: each.value for name, each in time.phases.items()} == pytest.approx(
            {"start-up": 100, "steps": 200, "evaluation": 50, "checkpoints": 10}
        )
        assert time.total.value == pytest.approx(360)
        assert time.total.high == pytest.approx(200 + 400 + 70 + 20)
        assert time.total.low == pytest.approx(50 + 100 + 40 + 5)
        assert time.epoch is not None
        assert time.epoch.value == pytest.approx(25)

    @pytest.mark.parametrize(("workers", "seconds"), [(2, 0.05), (0, 0.07)])
    def test_data_are_loaded_meanwhile_or_before_the_step_without_workers(self, workers: int, seconds: float) -> None:
        job = build_training(load=estimate(0.05), workers=workers)
        time = job.predict(STEP, gpus=1)
        assert time.phases["steps"].value == pytest.approx(seconds * 10_000)
        assert time.waits_for_data

    def test_each_copy_loads_its_part_of_a_batch(self) -> None:
        job = build_training(load=estimate(0.05))
        assert job.predict(STEP, gpus=4, copies=4).phases["steps"].value == pytest.approx(0.02 * 10_000)
        grown = build_training(load=estimate(0.05), grows=True)
        assert grown.predict(STEP, gpus=4, copies=4).phases["steps"].value == pytest.approx(0.05 * 2_500)

    def test_fewer_workers_than_were_measured_take_longer(self) -> None:
        job = build_training(load=estimate(0.05), workers=6)
        assert job.predict(STEP, gpus=1, workers=3).phases["steps"].value == pytest.approx(0.1 * 10_000)

    def test_a_batch_is_divided_or_grows(self) -> None:
        divided, grown = build_training(), build_training(grows=True)
        assert (divided.count_batch(8), divided.count_steps(8)) == (64, 10_000)
        assert (grown.count_batch(8), grown.count_steps(8)) == (512, 1_250)

    def test_the_last_step_of_an_epoch_may_be_smaller(self) -> None:
        assert build_training(samples=65).count_steps(1) == 20

    def test_steps_may_be_given_instead_of_epochs(self) -> None:
        job = build_training(epochs=None, steps=500, samples=6_400)
        assert (job.count_steps(1), job.count_epochs(1)) == (500, 5.0)
        assert build_training(epochs=None, steps=500, samples=None).predict(STEP, gpus=1).epoch is None

    def test_money_buys_epochs_by_the_upper_bounds(self) -> None:
        job = build_training()
        time = job.predict(STEP, gpus=1)  # an epoch takes up to 40 s, the start up to 200 s
        assert job.buy_epochs(time, 320.0) == pytest.approx(3.0)
        assert job.buy_epochs(time, 100.0) == 0.0

    @given(more=st.floats(1.0, 50.0), epochs=st.integers(1, 200))
    def test_a_slower_step_never_ends_earlier(self, more: float, epochs: int) -> None:
        job = build_training(epochs=epochs, evaluation_share=0.05)
        slower = estimate(STEP.value * more, spread=2.0)
        assert job.predict(slower, gpus=1).total.value >= job.predict(STEP, gpus=1).total.value


class TestWalltime:
    def test_it_is_the_upper_bound_at_the_risk_of_the_interval(self) -> None:
        total = estimate(1000.0, spread=1.5)
        assert find_walltime(total, 0.05) == pytest.approx(1500.0)
        assert find_walltime(total, 0.5) == pytest.approx(1000.0)

    @given(risk=st.floats(0.001, 0.5), spread=st.floats(1.01, 5.0))
    def test_the_risk_of_the_walltime_is_the_one_that_was_asked_for(self, risk: float, spread: float) -> None:
        total = estimate(1000.0, spread=spread)
        assert find_time_risk(total, find_walltime(total, risk)) == pytest.approx(risk, rel=1e-6)

    def test_a_time_without_interval_is_certain(self) -> None:
        assert [find_time_risk(estimate(10.0), seconds) for seconds in (9.0, 10.0)] == [1.0, 0.0]


class TestPlan:
    MODEL = RecordedTraining(workload=WORKLOAD, accumulation=2)

    def script(self, **facts: object) -> RecordedTraining:
        return RecordedTraining(workload=WORKLOAD, facts=ScriptFacts(**facts))  # type: ignore[arg-type]

    def test_a_model_divides_its_batch_and_a_script_does_not(self) -> None:
        plan = TrainingPlan(epochs=2, samples=1000)
        assert not build_job(plan, self.MODEL, level=0.9).grows
        assert build_job(plan, self.script(), level=0.9).grows
        assert build_job(TrainingPlan(epochs=2, samples=9, batch_per_gpu=True), self.MODEL, level=0.9).grows
        assert not build_job(TrainingPlan(epochs=2, samples=9, batch_per_gpu=False), self.script(), level=0.9).grows

    def test_a_step_has_all_batches_that_are_accumulated(self) -> None:
        assert build_job(TrainingPlan(steps=5), self.MODEL, level=0.9).batch == 128

    def test_what_the_script_shows_is_used_where_nothing_is_said(self) -> None:
        job = build_job(TrainingPlan(), self.script(epochs=3, batches=10, workers=2), level=0.9)
        assert (job.epochs, job.samples, job.workers) == (3, 640, 2)
        job = build_job(TrainingPlan(epochs=7, samples=99, workers=0), self.script(epochs=3, batches=10), level=0.9)
        assert (job.epochs, job.samples, job.workers) == (7, 99, 0)
        assert build_job(TrainingPlan(), self.script(steps=70, epochs=3), level=0.9).steps == 70

    def test_what_a_script_loads_evaluates_and_saves_is_part_of_its_job(self) -> None:
        shown = self.script(epochs=4, batches=100, evaluation_batches=30, saves_per_epoch=0.5, load_s=0.08, workers=4)
        job = build_job(TrainingPlan(), shown, level=0.9)
        assert job.load is not None
        assert (job.evaluation_share, job.checkpoints, job.load.value) == (pytest.approx(0.1), 2, 0.02)
        assert job.load.low < job.load.value < job.load.high
        said = TrainingPlan(evaluation_s=9.0, checkpoints=0, load_s=0.5)
        job = build_job(said, shown, level=0.9)
        assert job.load is not None
        assert (job.evaluation_share, job.evaluation_s, job.checkpoints, job.load.value) == (0.0, 9.0, 0, 0.5)

    def test_the_start_has_an_interval_unless_it_is_given(self) -> None:
        job = build_job(TrainingPlan(steps=1), self.MODEL, level=0.9)
        assert (job.startup.low, job.startup.value, job.startup.high) == STARTUP_S
        assert build_job(TrainingPlan(steps=1, startup_s=5.0), self.MODEL, level=0.9).startup.high == 5.0

    def test_all_that_is_missing_is_named_with_what_the_script_shows(self) -> None:
        with pytest.raises(SpecError) as caught:
            build_job(TrainingPlan(), self.MODEL, level=0.9)
        assert [mistake.place for mistake in caught.value.mistakes] == ["--epochs", "--samples"]
        with pytest.raises(SpecError, match=r"none \(the script shows 10 batches\); expected how long"):
            build_job(TrainingPlan(), self.script(batches=10), level=0.9)
        with pytest.raises(SpecError, match=r"--samples: found none \(the script shows 1 epoch\)"):
            build_job(TrainingPlan(), self.script(epochs=1), level=0.9)
        with pytest.raises(SpecError, match="shows none before its first step ends"):
            build_job(TrainingPlan(), self.script(gpu=True), level=0.9)

    def test_contradictions_are_refused(self) -> None:
        with pytest.raises(SpecError, match="3 epochs and 50 steps; expected one of them"):
            build_job(TrainingPlan(epochs=3, steps=50), self.MODEL, level=0.9)
        with pytest.raises(SpecError, match="a time for each epoch, and 50 steps"):
            build_job(TrainingPlan(steps=50, evaluation_s=60.0), self.MODEL, level=0.9)

    def test_loaders_and_their_memory_follow_the_workers(self) -> None:
        few, many = (build_job(TrainingPlan(steps=1, workers=n), self.MODEL, level=0.9).host for n in (1, 9))
        assert few.value < many.value
        assert math.isfinite(many.high)
