"""How long advice for a training takes: the whole answer for a site, against reading the step of the model alone."""

import time
from dataclasses import dataclass
from statistics import median

import foretell
from foretell.advice.training_plan import TrainingPlan
from foretell.workloads.api import read_memory, read_workload
from foretell.workloads.step_options import InputSpec, StepOptions

_REPEATS = 3
_SOURCE = "benchmarks.advise.large_decoders:build_llama"
_MODELS = {"7B": (32, 4096, 11008, 32), "70B": (80, 8192, 28672, 64)}  # layers, width, inner width, heads
_SITES = ("osc",)
_INPUTS = (InputSpec(shape=(32, 4096), dtype="int64", high=32000, name="input_ids"),)
_OPTIONS = StepOptions(precision="bf16", optimizer="adamw", checkpointing=True)
GOAL = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedResult:
    """Seconds of the processor."""

    model: str
    offers: int
    capture_s: float
    answer_s: float

    @property
    def ratio(self) -> float:
        return self.answer_s / self.capture_s


def judge_speed() -> list[SpeedResult]:
    """Medians of several answers, each next to a capture."""
    return [_judge(name) for name in _MODELS]


def _judge(name: str) -> SpeedResult:
    layers, width, inner, heads = _MODELS[name]
    arguments: dict[str, object] = {
        "vocab_size": 32000,
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
    }
    measured = [_measure(arguments) for _ in range(_REPEATS)]
    captures, answers, offers = zip(*measured, strict=True)
    return SpeedResult(model=name, offers=offers[0], capture_s=median(captures), answer_s=median(answers))


def _measure(arguments: dict[str, object]) -> tuple[float, float, int]:
    """Seconds of a capture and of an answer, and the offers of the answer."""
    begin = time.process_time()
    read_workload(_SOURCE, _INPUTS, arguments=arguments, options=_OPTIONS)
    read_memory(_SOURCE, _INPUTS, arguments=arguments, options=_OPTIONS)
    middle = time.process_time()
    plan = TrainingPlan(steps=1000)
    found = foretell.advise(_SOURCE, _INPUTS, plan=plan, sites=_SITES, arguments=arguments, options=_OPTIONS)
    return middle - begin, time.process_time() - middle, len(found.best.offers)


def print_speed() -> None:
    """A line for each model."""
    for each in judge_speed():
        goal = "met" if each.ratio <= GOAL else "missed"
        print(
            f"Llama {each.model} at {', '.join(_SITES)}: {each.offers} offers in {each.answer_s:.1f} s of a core, "
            f"{each.ratio:.2f} times the capture ({each.capture_s:.1f} s); goal {GOAL}: {goal}"
        )
