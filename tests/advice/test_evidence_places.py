"""Runs at places without an offer are compared with what the code predicts for them."""

from dataclasses import replace

from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_places import build_place_predictor
from foretell.advice.evidence_steps import PlacedStep, StepEvidence, combine
from foretell.core.workload import Operator, StepPhase, Workload

LINEAR = Operator(
    kind="linear",
    phase=StepPhase.FORWARD,
    inputs=((512, 4096), (4096, 4096)),
    output=(512, 4096),
    dtype="float16",
    flops=2.0 * 512 * 4096 * 4096,
    bytes_moved=42e6,
)
WORKLOAD = Workload(
    name="net", operators=(LINEAR,) * 20, batch=512, parameters=1, settings={"precision": "fp16", "mode": "training"}
)


def test_devices_are_known_by_their_evidence() -> None:
    predict = build_place_predictor(WORKLOAD, batch=512)
    known, figures = (predict(StepPlace(device=name, batch=512)) for name in ("RTX3090", "M60"))
    assert known is not None
    assert figures is not None
    assert known.estimate.value < figures.estimate.value
    assert not figures.known


def test_places_that_the_step_says_nothing_of_have_none() -> None:
    predict = build_place_predictor(WORKLOAD, batch=512)
    for place in (
        StepPlace(device="no such device", batch=512),
        StepPlace(device="A100-80", gpus=4, layout="ddp", batch=512),
        StepPlace(device="A100-80", batch=64),
        StepPlace(device="A100-80", batch=512, cores=8),
    ):
        assert predict(place) is None
    read = build_place_predictor(WORKLOAD, batch=512, read=lambda batch: replace(WORKLOAD, batch=batch))
    assert read(StepPlace(device="A100-80", batch=64)) is not None


def test_run_elsewhere_corrects_an_offer() -> None:
    predict = build_place_predictor(WORKLOAD, batch=512)
    here, there = (predict(StepPlace(device=name, batch=512)) for name in ("RTX3090", "RTX4090"))
    assert here is not None
    assert there is not None
    run = StepEvidence(device="RTX3090", batch=512, step_s=1.3 * here.estimate.value)
    offer = PlacedStep(place=there.place, estimate=there.estimate)
    assert combine([offer], [run], predict=predict).after[0].value > 1.05 * there.estimate.value
