"""The tasks of a step on several GPUs: what each stage computes and exchanges, and what waits for what."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretell.core.topology import LayoutGroups
from foretell.core.workload import Floats
from foretell.distributed.collective_times import Collective
from foretell.distributed.data_exchanges import DataExchanges, Exchanging, Gathering
from foretell.distributed.pipeline_orders import Turn, order_turns, place_units
from foretell.distributed.shared_states import UnitStates
from foretell.distributed.shared_steps import SharedStep
from foretell.distributed.step_units import BACKWARD, FORWARD
from foretell.distributed.task_timeline import Task, replay_tasks

_STEADY = 3  # rounds of a pipeline after which each further one takes as long


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSeconds:
    """Of each operator of a shared step."""

    device: Floats  # its kernels
    host: Floats  # that the device waits for the host
    exchange: Floats  # that it waits for exchanges inside of layers
    accumulating: float = 0.0  # to add the gradients of a batch to those before, for each part of the model

    @property
    def whole(self) -> Floats:
        return self.device + self.host + self.exchange


class StepSchedule:
    """One step of a layout: every stage of a pipeline on one of the GPUs that run it."""

    def __init__(
        self, step: SharedStep, seconds: OperatorSeconds, groups: LayoutGroups, exchanging: Exchanging
    ) -> None:
        self._step, self.layout, self.seconds = step, step.layout, seconds
        self.parts = place_units(step.units, step.layout, self._of_units.sum(axis=0), name=step.workload.name)
        self._part_of = self.parts[step.units.unit_of]
        self.exchanges = DataExchanges(step, groups, exchanging)
        self.send_s = exchanging(Collective.SEND, step.result_bytes, groups.stages)

    @cached_property
    def _sums(self) -> Floats:
        """Seconds of each part of the model (columns) in each pass (rows)."""
        whole, count = self.seconds.whole, int(self.layout.pipeline_parallel * self.layout.interleave)
        passes = self._step.units.pass_of
        return np.array(
            [
                np.bincount(self._part_of[passes == one], weights=whole[passes == one], minlength=count)
                for one in (FORWARD, BACKWARD)
            ]
        )

    def find_slowest(self, batches: int) -> tuple[int, float]:
        """The stage that computes longest, and how long, without what it waits for."""
        stages = self.layout.pipeline_parallel
        of_part = self._sums.sum(axis=0)
        of_stage = [float(of_part[stage::stages].sum()) for stage in range(stages)]
        slowest = int(np.argmax(of_stage))
        adding = self.seconds.accumulating * self.layout.interleave if batches > 1 else 0.0
        return slowest, batches * (of_stage[slowest] + adding)

    def sum_stage(self, stage: int, seconds: Floats) -> float:
        """The sum over the operators of a stage, without the update."""
        own = (self._part_of % self.layout.pipeline_parallel == stage) & (self._step.units.pass_of <= BACKWARD)
        return float(seconds[own].sum())

    def measure(self, batches: int, *, exchanges: bool = True) -> float:
        """Seconds from the begin of the step to its update, with or without the exchange of gradients and weights.

        After some rounds of a pipeline, each further round takes as long as the one before, and never less than its
        slowest stage computes.
        """
        stages = self.layout.pipeline_parallel
        least = _STEADY * stages
        if batches <= least + stages:
            return self._replay(batches, exchanges)
        rest = (batches - least) % stages
        first, second = (self._replay(least + rest + more, exchanges) for more in (0, stages))
        each = max((second - first) / stages, self.find_slowest(batches)[1] / batches)
        return first + each * (batches - least - rest)

    def _replay(self, batches: int, exchanges: bool) -> float:
        tasks = [
            task
            for stage in range(self.layout.pipeline_parallel)
            for task in _StageTasks(self, stage, batches, exchanges).list_all()
        ]
        return max(replay_tasks(tasks).values(), default=0.0)

    def list_states(self, stage: int) -> list[UnitStates]:
        """Of the units of a stage."""
        own = np.flatnonzero(self.parts % self.layout.pipeline_parallel == stage).tolist()
        return [self._step.states[unit] for unit in own]

    # What the tasks are made of

    def find_bounds(self, part: int) -> np.ndarray:
        """Places of the operators of a part of the model in its backward pass."""
        return np.flatnonzero((self._part_of == part) & (self._step.units.pass_of == BACKWARD))

    @cached_property
    def _of_units(self) -> Floats:
        """Seconds of each unit (columns) in each pass (rows)."""
        return np.array([self._step.units.add_up(self.seconds.whole, one) for one in (FORWARD, BACKWARD)])

    def sum_units(self, one: int, units: Sequence[int]) -> float:
        """Seconds of some units in a pass."""
        return float(self._of_units[one, list(units)].sum())

    def cut_backward(self, part: int, places: Sequence[int]) -> list[float]:
        """Seconds of the backward pass of a part up to each of these operators, and of what is left."""
        own = self.find_bounds(part)
        ends = np.searchsorted(own, places, side="right").tolist()
        sums = np.concatenate([[0.0], np.cumsum(self.seconds.whole[own])])
        marks = sums[[0, *ends, len(own)]]
        return [float(each) for each in np.diff(marks)]

    def sum_pass(self, part: int, one: int) -> float:
        return float(self._sums[one, part])


class _StageTasks:
    """The tasks of one stage."""

    def __init__(self, schedule: StepSchedule, stage: int, batches: int, exchanges: bool) -> None:
        self._schedule, self._stage, self._batches, self._exchanged = schedule, stage, batches, exchanges
        self._stages, self._interleave = schedule.layout.pipeline_parallel, schedule.layout.interleave
        self._last_part = self._stages * self._interleave - 1

    def list_all(self) -> Iterator[Task]:
        orders = order_turns(self._stage, stages=self._stages, interleave=self._interleave, batches=self._batches)
        for turn in orders:
            yield from self._run(turn)
            yield from self._send(turn)

    def _wait(self, turn: Turn) -> tuple[Hashable, ...]:
        """What a batch waits for: the part of the model before it, or after it."""
        if turn.forward:
            return (("sent", True, turn.batch, turn.chunk - 1),) if turn.chunk else ()
        if turn.chunk == self._last_part:
            return ((True, turn.batch, turn.chunk),)
        return (("sent", False, turn.batch, turn.chunk + 1),)

    def _send(self, turn: Turn) -> Iterator[Task]:
        """To the stage of the next part; nothing leaves a single stage."""
        if turn.chunk == (self._last_part if turn.forward else 0):
            return
        seconds = self._schedule.send_s if self._stages > 1 else 0.0
        yield Task(("sent", *turn_key(turn)), ("send", self._stage, turn.forward), seconds, (turn_key(turn),))

    def _run(self, turn: Turn) -> Iterator[Task]:
        exchanges = self._schedule.exchanges if self._exchanged else None
        if exchanges is not None and exchanges.gathers(turn.batch, forward=turn.forward):
            yield from self._run_gathered(turn, exchanges)
        elif exchanges is not None and not turn.forward and turn.batch == self._batches - 1:
            yield from self._run_reduced(turn, exchanges)
        else:
            seconds = self._schedule.sum_pass(turn.chunk, FORWARD if turn.forward else BACKWARD)
            yield Task(turn_key(turn), self._compute, seconds + self._adding(turn), self._wait(turn))

    @property
    def _compute(self) -> Hashable:
        return "compute", self._stage

    @property
    def _data(self) -> Hashable:
        return "data", self._stage

    def _adding(self, turn: Turn) -> float:
        return self._schedule.seconds.accumulating if not turn.forward and self._batches > 1 else 0.0

    def _run_gathered(self, turn: Turn, exchanges: DataExchanges) -> Iterator[Task]:
        """Units one after the other; while one runs, the weights of the next are gathered if exchanges overlap."""
        units = exchanges.list_gatherings(turn.chunk, self._schedule.parts, forward=turn.forward)
        ordered = units if turn.forward else units[::-1]
        name, ahead = turn_key(turn), int(exchanges.overlaps)
        for number, unit in enumerate(ordered):
            for place in range(number + ahead if number else 0, min(number + ahead + 1, len(ordered))):
                before = ((*name, place - ahead - 1),) if place > ahead else ()
                yield self._gather(turn, place, ordered[place].gather_s, before)
            yield self._compute_unit(turn, name, number, unit, last=number == len(ordered) - 1)
            if not turn.forward:
                after = turn_key(turn) if number == len(ordered) - 1 else (*name, number)
                yield Task(("reduce", *name, number), self._data, unit.reduce_s, (after,))

    def _gather(self, turn: Turn, number: int, seconds: float, before: tuple[Hashable, ...]) -> Task:
        begin = self._wait(turn) if number == 0 and not turn.forward else ()
        return Task(("gather", *turn_key(turn), number), self._data, seconds, (*before, *begin))

    def _compute_unit(
        self, turn: Turn, name: tuple[Hashable, ...], number: int, unit: Gathering, *, last: bool
    ) -> Task:
        one = FORWARD if turn.forward else BACKWARD
        seconds = self._schedule.sum_units(one, unit.units)
        after = (("gather", *name, number), *(self._wait(turn) if number == 0 else ()))
        key = turn_key(turn) if last else (*name, number)
        return Task(key, self._compute, seconds + (self._adding(turn) if last else 0.0), after)

    def _run_reduced(self, turn: Turn, exchanges: DataExchanges) -> Iterator[Task]:
        """The last batch of a step: gradients are exchanged as soon as a bucket of them is full, or after all."""
        own = self._schedule.find_bounds(turn.chunk)
        buckets = exchanges.list_buckets(own)
        cuts = self._schedule.cut_backward(turn.chunk, [bucket.ready for bucket in buckets])
        name = turn_key(turn)
        for number, seconds in enumerate(cuts):
            last = number == len(buckets)
            key = turn_key(turn) if last else (*name, number)
            added = self._adding(turn) if last else 0.0
            yield Task(key, self._compute, seconds + added, self._wait(turn) if number == 0 else ())
            if not last:
                after = (key,) if exchanges.overlaps else (turn_key(turn),)
                yield Task(("reduce", *name, number), self._data, buckets[number].reduce_s, after)


def turn_key(turn: Turn) -> tuple[Hashable, ...]:
    """The key of what belongs to a turn."""
    return turn.forward, turn.batch, turn.chunk
