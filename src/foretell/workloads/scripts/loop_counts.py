"""How long a script trains, as far as its loops and its trainer show it while the first step runs."""

from collections.abc import Sequence
from types import FrameType
from typing import Any

from foretell.workloads.scripts.epoch_calls import count_calls
from foretell.workloads.scripts.script_events import is_own_code
from foretell.workloads.scripts.script_loops import Counter, RunningLoop, find_loops
from foretell.workloads.scripts.script_values import count_items
from foretell.workloads.scripts.trainer_counts import ask_trainer
from foretell.workloads.scripts.training_counts import TrainingCounts

_EPOCHS, _STEPS = ("epoch",), ("step", "iter")


def find_counts(frame: FrameType | None, loader: Any, *, accumulation: int = 1) -> TrainingCounts:
    """The length of the training whose step ends in this frame, and what each epoch does besides.

    ``loader`` gave the batch of the step, of which a step has ``accumulation``.
    """
    loops: list[RunningLoop] = []
    asked = TrainingCounts()
    batches = count_items(loader) if loader is not None else None
    while frame is not None:
        if is_own_code(frame.f_code.co_filename):
            loops += find_loops(frame, loader)
        else:
            asked = asked.or_else(ask_trainer(frame, batches))
        frame = frame.f_back
    if asked.epochs is not None or asked.steps is not None:
        return asked.or_else(TrainingCounts(batches=batches))
    return _Loops(loops, batches, accumulation).count()


class _Loops:
    """The loops around a step, the innermost first."""

    def __init__(self, loops: Sequence[RunningLoop], batches: int | None, accumulation: int) -> None:
        self._loops = loops
        self._batches = batches
        self._accumulation = accumulation
        self._over_data = next((place for place, each in enumerate(loops) if _is_over_data(each, place)), None)
        self._epoch = self._find_epoch()

    def count(self) -> TrainingCounts:
        """What they say of the training."""
        batches = self._count_batches()
        epochs = self._find_epochs()
        steps = self._count_steps()
        passes = epochs.count if epochs else 1 if self._is_one_pass() and steps is None else None
        found = TrainingCounts(epochs=passes, steps=steps, batches=batches)
        if self._epoch is None:
            return found
        loop = self._loops[self._epoch]
        return found.or_else(count_calls(loop, batches))

    def _find_epoch(self) -> int | None:
        """The loop whose turns are epochs: by the name that it counts, or because it is around the one over data."""
        for place, loop in enumerate(self._loops):
            if _find_named(loop, _EPOCHS):
                return place
        if self._over_data is None:
            return None
        around = self._loops[self._over_data + 1 : self._over_data + 2]
        return self._over_data + 1 if around and around[0].counters and not _find_named(around[0], _STEPS) else None

    def _find_epochs(self) -> Counter | None:
        if self._epoch is None:
            return None
        loop = self._loops[self._epoch]
        return _find_named(loop, _EPOCHS) or loop.counters[0]

    def _is_one_pass(self) -> bool:
        """Whether there is a loop over data and none around it."""
        return self._over_data is not None and self._over_data == len(self._loops) - 1

    def _count_batches(self) -> int | None:
        """Batches of an epoch: those of the loader, of the list or of the loop in it, up to where the loop ends."""
        known = [self._batches] if self._batches is not None and self._over_data is not None else []
        inside = self._loops[: self._epoch] if self._epoch is not None else []
        for place, loop in enumerate(inside):
            known += [loop.items] if loop.items is not None and place == self._over_data else []
            known += [self._scale(each.count, loop, place) for each in loop.counters if each.restarts and place == 0]
        if not known and self._batches is None and self._epoch == 0 and not self._loops[0].is_conditional:
            return self._accumulation  # each epoch is one step
        return min(known) if known else self._batches

    def _scale(self, turns: int, loop: RunningLoop, place: int) -> int:
        """Batches of so many turns: of one, or of a whole step."""
        one_each = place == self._over_data or loop.is_conditional
        return turns if one_each else turns * self._accumulation

    def _count_steps(self) -> int | None:
        """Updates of the whole training, if it counts them."""
        for place, loop in enumerate(self._loops[: self._epoch] if self._epoch is not None else self._loops):
            for counter in loop.counters:
                named = any(word in counter.name for word in _STEPS)
                inside_epoch = counter.restarts and self._epoch is not None
                if not inside_epoch and (named or (place == 0 and self._over_data is None)):
                    return self._count_updates(counter, loop)
        return None

    def _count_updates(self, counter: Counter, loop: RunningLoop) -> int:
        return max(1, counter.count // self._accumulation) if loop.is_conditional else counter.count


def _is_over_data(loop: RunningLoop, place: int) -> bool:
    """Over the loader, or a list of batches; an outer list may be of anything, such as seeds."""
    return loop.over_loader or (place == 0 and loop.items is not None)


def _find_named(loop: RunningLoop, words: Sequence[str]) -> Counter | None:
    return next((each for each in loop.counters if any(word in each.name for word in words)), None)
