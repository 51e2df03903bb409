"""Tasks on streams: each stream runs its tasks in their order, each task when those that it waits for have ended."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """Work of one stream, such as the computing or the exchanges of a GPU."""

    key: Hashable
    stream: Hashable
    seconds: float
    after: tuple[Hashable, ...] = ()  # keys of other tasks; of those that do not exist, none is waited for


def replay_tasks(tasks: Iterable[Task]) -> dict[Hashable, float]:
    """When each task ends. Tasks of a stream run in the order in which they are given."""
    listed = list(tasks)
    replay = _Replay(listed)
    replay.run()
    assert len(replay.ends) == len(listed), "tasks wait for each other"
    return {task.key: end for task, end in zip(listed, replay.ends_in_order(), strict=True)}


class _Replay:
    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        numbers = {task.key: number for number, task in enumerate(tasks)}
        assert len(numbers) == len(tasks), "tasks have the same key"
        self._waits = [[numbers[key] for key in task.after if key in numbers] for task in tasks]
        self._missing = [len(each) for each in self._waits]
        self._readers: list[list[int]] = [[] for _ in tasks]
        for number, before in enumerate(self._waits):
            for each in before:
                self._readers[each].append(number)
        self._following: list[int | None] = [None] * len(tasks)
        self._heads = self._link_streams()
        self.ends: dict[int, float] = {}

    def _link_streams(self) -> set[int]:
        """The first task of each stream; every other is linked to the one before it."""
        last: dict[Hashable, int] = {}
        heads = set()
        for number, task in enumerate(self._tasks):
            before = last.get(task.stream)
            if before is None:
                heads.add(number)
            else:
                self._following[before] = number
            last[task.stream] = number
        return heads

    def run(self) -> None:
        """Run what can run until nothing is left."""
        free: dict[Hashable, float] = {}
        ready = [number for number in self._heads if not self._missing[number]]
        while ready:
            number = ready.pop()
            task = self._tasks[number]
            begin = max(free.get(task.stream, 0.0), max((self.ends[each] for each in self._waits[number]), default=0.0))
            free[task.stream] = self.ends[number] = begin + task.seconds
            self._heads.discard(number)
            for reader in self._readers[number]:
                self._missing[reader] -= 1
                if not self._missing[reader] and reader in self._heads:
                    ready.append(reader)
            following = self._following[number]
            if following is not None:
                self._heads.add(following)
                if not self._missing[following]:
                    ready.append(following)

    def ends_in_order(self) -> list[float]:
        """Of each task."""
        return [self.ends[number] for number in range(len(self._tasks))]
