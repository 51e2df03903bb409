"""Results: the times in which a language model generates text on a device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from foretell.core.generation import Generation, GenerationTimes
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning
from foretell.steps.step_results import LeftOutDevice, StepPrediction


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPrediction:
    """Predicted text on a device: the step that reads the prompt, then captured steps that add a token."""

    generation: Generation
    steps: tuple[StepPrediction, ...]

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.steps[0].device

    @property
    def method(self) -> str:
        """How it was predicted."""
        return self.steps[0].method

    @property
    def warnings(self) -> tuple[PredictionWarning, ...]:
        """The limits of the prediction, each once."""
        return tuple({each.code: each for step in self.steps for each in step.warnings}.values())

    @property
    def first_token_s(self) -> Estimate:
        """Until the first token: the time of the prompt."""
        return self._combine(lambda times: times.first_token_s)

    @property
    def token_s(self) -> Estimate:
        """Of each further token, on average; 0 if there is none."""
        return self._combine(lambda times: times.token_s)

    @property
    def total_s(self) -> Estimate:
        """Of the whole text."""
        return self._combine(lambda times: times.total_s)

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens of all texts of the batch per second."""
        return self._find_times("value").tokens_per_s

    @property
    def main_step(self) -> StepPrediction:
        """The step that takes most of the time: a middle one of those that add a token, or the prompt's."""
        first, *others = self.steps
        decoding = self.total_s.value - first.estimate.iteration.value
        return others[len(others) // 2] if others and decoding > first.estimate.iteration.value else first

    def _combine(self, choose: Callable[[GenerationTimes], float]) -> Estimate:
        """The bounds of all steps together: if one is predicted too fast, so are the others."""
        value, low, high = (choose(self._find_times(name)) for name in ("value", "low", "high"))
        return Estimate(value=value, low=low, high=high, level=self.steps[0].estimate.iteration.level)

    def _find_times(self, name: str) -> GenerationTimes:
        first, *others = (float(getattr(step.estimate.iteration, name)) for step in self.steps)
        return self.generation.combine(first, others)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPredictions(Sequence[GenerationPrediction]):
    """Predictions in the order in which they are shown, and devices of the request that were left out."""

    predictions: tuple[GenerationPrediction, ...]
    left_out: tuple[LeftOutDevice, ...] = ()

    @overload
    def __getitem__(self, place: int) -> GenerationPrediction: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[GenerationPrediction, ...]: ...
    def __getitem__(self, place: int | slice) -> GenerationPrediction | tuple[GenerationPrediction, ...]:
        return self.predictions[place]

    def __len__(self) -> int:
        return len(self.predictions)
