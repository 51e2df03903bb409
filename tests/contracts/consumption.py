"""What every model of consumption must do. Inherit, and give the fixture ``model``: one that is not fitted yet."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretell.core.model_files import load_model, save_model
from foretell.core.observation import Cycle, Metric, Resource
from foretell.core.workload import Gradient, Operator, StepPhase, Workload
from foretell.distributed._base import ConsumptionModel
from foretell.distributed.consumption import Case, MeasuredJob, Setting, Strategy

SETTINGS = (
    Setting(workers=2, link_bytes_per_s=2.5e7, device="made up"),
    Setting(strategy=Strategy.SERVERS, servers=1, workers=2, link_bytes_per_s=1e8, device="made up"),
)
_RATE = 1e9  # operations a second of the made-up device
_MEASURED = (Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE)


def build_workload(*, layers: int, width: int, batch: int) -> Workload:
    """A perceptron's step: linear layers with a ReLU after each, a loss, and the same turned round."""
    operators: list[Operator] = []
    sources: list[tuple[int, ...]] = []
    gradients: list[Gradient] = []
    for kind in ["linear", "relu"] * layers + ["mse_loss"]:
        sources.append((len(operators) - 1,) if operators else ())
        operators.append(_build_operator(kind, StepPhase.FORWARD, width, batch))
    for place in reversed(range(len(operators))):
        forward = operators[place]
        backward = _build_operator(forward.kind, StepPhase.BACKWARD, width, batch)
        sources.append((place, len(operators) - 1) if forward.kind != "mse_loss" else (place,))
        if backward.parameters:
            gradients.append(Gradient(bytes_=4 * backward.parameters, ready=len(operators)))
        operators.append(replace(backward, input_gradient=place > 0))
    for gradient in reversed(gradients):
        sources.append((gradient.ready,))
        operators.append(_build_operator("add_", StepPhase.UPDATE, width, batch))
    return Workload(
        name=f"{layers} x {width}",
        operators=tuple(operators),
        batch=batch,
        parameters=layers * width**2,
        sources=tuple(sources),
        gradients=tuple(gradients),
    )


def _build_operator(kind: str, phase: StepPhase, width: int, batch: int) -> Operator:
    rows, weights = (batch, width), (width, width)
    inputs = {"linear": (rows, weights), "add_": (weights, weights), "mse_loss": (rows, rows)}.get(kind, (rows,))
    work = 2.0 * batch * width**2 if kind == "linear" else float(width**2 if kind == "add_" else batch * width)
    flops = 2 * work if kind == "linear" and phase is StepPhase.BACKWARD else work
    return Operator(
        kind=kind,
        phase=phase,
        inputs=inputs,
        output={"add_": weights, "mse_loss": ()}.get(kind, rows),
        flops=flops,
        bytes_moved=4.0 * (sum(a * b for a, b in inputs) + batch * width),
        parameters=width**2 if kind in ("linear", "add_") else 0,
    )


def build_jobs(settings: Sequence[Setting] = SETTINGS, *, seed: int = 0) -> tuple[list[Case], list[MeasuredJob]]:
    """Jobs that follow a law: compute is operations by a rate, and gradients are sent after it, bytes by the link."""
    draw = np.random.default_rng(seed)
    cases, jobs = [], []
    for setting in settings:
        for workload in _build_workloads():
            cases.append(_build_case(workload, setting))
            jobs.append(_build_job(workload, setting, noise=draw.lognormal(0, 0.01)))
    return cases, jobs


def _build_workloads() -> Iterator[Workload]:
    for layers in (2, 4, 8):
        for width in (64, 128, 256):
            yield build_workload(layers=layers, width=width, batch=32)


def _build_case(workload: Workload, setting: Setting) -> Case:
    return Case(
        workload=workload, setting=setting, operator_s=np.array([each.flops / _RATE for each in workload.operators])
    )


def _build_job(workload: Workload, setting: Setting, *, noise: float) -> MeasuredJob:
    link = setting.link_bytes_per_s or 1e8
    compute_s = noise * workload.flops / _RATE
    sent_s = 4 * workload.parameters / link
    both_s = compute_s + (sent_s if setting.strategy is Strategy.ALLREDUCE else 2 * sent_s)  # there, then back
    return MeasuredJob(
        workload=workload,
        family="perceptron",
        setting=setting,
        iteration_s=both_s,
        cycles={
            Resource.COMPUTE: _build_cycle(compute_s, both_s, 0.95),
            Resource.TRANSMIT: _build_cycle(sent_s, both_s, 0.95 * link),
            Resource.RECEIVE: _build_cycle(sent_s, both_s, 0.95 * link),
        },
    )


def _build_cycle(burst_s: float, period_s: float, amount: float) -> Cycle:
    idle_s = period_s - burst_s
    return Cycle(
        burst_s=burst_s,
        idle_s=idle_s,
        burst_amount=amount,
        idle_amount=0.01 * amount,
        period_s=period_s,
        bursts=20,
        chance=0.001,
    )


class ConsumptionContract:
    """The promises of :class:`foretell.distributed._base.ConsumptionModel`."""

    def test_predictions_are_in_the_order_of_cases(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        predicted = model.fit(cases, jobs).predict(cases)
        assert len(predicted) == len(cases)
        turned = model.predict(cases[::-1])
        for one, other in zip(predicted, turned[::-1], strict=True):
            assert other.iteration_s == pytest.approx(one.iteration_s, rel=1e-4)
            assert dict(other.metrics) == pytest.approx(dict(one.metrics), rel=1e-4)
        assert model.predict([]) == []

    def test_a_prediction_does_not_depend_on_other_cases(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        predicted = model.fit(cases, jobs).predict(cases)
        (alone,) = model.predict(cases[5:6])
        assert dict(alone.metrics) == pytest.approx(dict(predicted[5].metrics), rel=1e-4)

    def test_figures_are_finite_and_none_is_below_zero(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        huge = replace(cases[0], workload=build_workload(layers=20, width=4096, batch=1024))
        huge = replace(huge, operator_s=np.full(len(huge.workload.operators), 1e-3))
        for answer in model.fit(cases, jobs).predict([*cases, huge]):
            figures = [answer.iteration_s, answer.compute_s, answer.exposed_s, *answer.metrics.values()]
            assert np.isfinite(figures).all()
            assert min(figures) >= 0

    def test_resources_that_were_not_measured_are_left_out(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        kept = [_drop(job, Resource.RECEIVE) for job in jobs]
        (predicted,) = model.fit(cases, kept).predict(cases[:1])
        assert {resource for resource, _ in predicted.metrics} == {Resource.COMPUTE, Resource.TRANSMIT}
        assert {metric for _, metric in predicted.metrics} == set(Metric)

    def test_a_job_without_a_cycle_is_fitted_to_the_rest(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        some = [_drop(job, Resource.COMPUTE) if place % 3 == 0 else job for place, job in enumerate(jobs)]
        for answer in model.fit(cases, some).predict(cases):
            assert {resource for resource, _ in answer.metrics} == set(_MEASURED)

    def test_the_same_jobs_give_the_same_predictions(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        first = model.fit(cases, jobs).predict(cases)
        assert model.fit(cases, jobs).predict(cases) == first

    def test_saved_and_loaded_it_predicts_the_same(self, model: ConsumptionModel, tmp_path: Path) -> None:
        cases, jobs = build_jobs()
        model.fit(cases, jobs)
        save_model(tmp_path / "model.safetensors", model, {"jobs": len(jobs)})
        loaded, facts = load_model(tmp_path / "model.safetensors", [type(model)], remedy="fit it again")
        assert facts == {"jobs": len(jobs)}
        assert loaded.predict(cases) == model.predict(cases)

    def test_fitted_jobs_are_reproduced(self, model: ConsumptionModel) -> None:
        cases, jobs = build_jobs()
        predicted = model.fit(cases, jobs).predict(cases)
        for resource in _MEASURED:
            for metric in Metric:
                errors = [
                    abs(answer.metrics[resource, metric] / getattr(job.cycles[resource], metric) - 1)
                    for answer, job in zip(predicted, jobs, strict=True)
                ]
                assert np.median(errors) < 0.4, (resource, metric)


def _drop(job: MeasuredJob, resource: Resource) -> MeasuredJob:
    return replace(job, cycles={name: cycle for name, cycle in job.cycles.items() if name is not resource})
