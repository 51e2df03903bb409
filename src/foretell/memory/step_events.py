"""The events of several steps one after another, from a recorded first and second one."""

from typing import NamedTuple

import numpy as np

from foretell.core.memory import Integers, MemoryTrace


class StepEvents(NamedTuple):
    """Events and blocks as in a ``MemoryTrace``; ``blocks`` has the recorded block of each."""

    events: Integers
    blocks: Integers
    places: Integers

    def find_initial(self) -> Integers:
        """Blocks that are there before the first event."""
        there = np.ones(len(self.blocks), dtype=bool)
        there[self.events[self.events > 0] - 1] = False
        return np.flatnonzero(there)


def repeat_steps(trace: MemoryTrace, steps: int) -> StepEvents:
    """The first step and ``steps`` - 1 times the second. What one leaves, as its loss, the next frees."""
    count = len(trace.sizes)
    recorded = trace.events[trace.second :]
    allocated = recorded[recorded > 0] - 1
    freed = -recorded[recorded < 0] - 1
    inherited = np.setdiff1d(freed, allocated)
    left = _match(trace, inherited, np.setdiff1d(allocated, freed))
    own = np.zeros(count, dtype=bool)
    own[allocated] = True

    events = [trace.events]
    blocks = [np.arange(count)]
    names = np.arange(count)  # of the recorded blocks in the step before
    for step in range(2, steps):
        renamed = names.copy()
        renamed[allocated] = count * (step - 1) + np.arange(count)[allocated]
        renamed[inherited] = np.where(left >= 0, names[left], -1)
        numbers = renamed[np.abs(recorded) - 1]
        events.append(np.where(numbers < 0, 0, np.sign(recorded) * (numbers + 1)))
        blocks.append(np.arange(count))
        names = renamed
    places = np.concatenate([trace.places, *[trace.places[trace.second :]] * (steps - 2)])
    joined = np.concatenate(events)
    return _compact(StepEvents(joined[joined != 0], np.concatenate(blocks), places[joined != 0]))


def _match(trace: MemoryTrace, inherited: Integers, left: Integers) -> Integers:
    """For each block that a step frees for the one before, the block that it leaves in turn; -1 if there is none."""
    waiting: dict[tuple[int, int], list[int]] = {}
    for block in left:
        waiting.setdefault((int(trace.sizes[block]), int(trace.kinds[block])), []).append(int(block))
    found = []
    for block in inherited:
        same = waiting.get((int(trace.sizes[block]), int(trace.kinds[block])))
        found.append(same.pop(0) if same else -1)
    return np.array(found, dtype=np.int64)


def _compact(steps: StepEvents) -> StepEvents:
    """Without the numbers of repeated steps that name no block."""
    count = len(steps.blocks)
    used = np.zeros(count, dtype=bool)
    used[np.abs(steps.events) - 1] = True
    first = np.arange(count) == steps.blocks  # blocks of the recording, some of which are there from the beginning
    used |= first & (np.arange(count) < steps.blocks.max() + 1)
    numbers = np.cumsum(used) - 1
    events = np.sign(steps.events) * (numbers[np.abs(steps.events) - 1] + 1)
    return StepEvents(events, steps.blocks[used], steps.places)
