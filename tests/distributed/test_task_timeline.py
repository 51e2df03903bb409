"""Tasks on streams, against a search for the earliest times at which everything can begin."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from foretell.distributed.task_timeline import Task, replay_tasks


@draw.composite
def list_tasks(drawn: draw.DrawFn) -> list[Task]:
    """Tasks that wait only for those before them, then with the streams one after the other or mixed."""
    count = drawn(draw.integers(1, 14))
    tasks = [
        Task(
            key=("task", number),
            stream=drawn(draw.integers(0, 3)),
            seconds=drawn(draw.integers(0, 5)) / 4,
            after=tuple(("task", each) for each in drawn(draw.sets(draw.integers(-2, max(0, number - 1)), max_size=3)))
            if number
            else (),
        )
        for number in range(count)
    ]
    return sorted(tasks, key=lambda task: str(task.stream)) if drawn(draw.booleans()) else tasks


def search(tasks: Sequence[Task]) -> dict[Hashable, float]:
    """When each task ends: every time is put off until nothing contradicts the order of a stream or what is awaited."""
    begins = {task.key: 0.0 for task in tasks}
    seconds = {task.key: task.seconds for task in tasks}
    changed = True
    while changed:
        changed = False
        last: dict[Hashable, Hashable] = {}
        for task in tasks:
            before = [each for each in (*task.after, last.get(task.stream)) if each in begins]
            earliest = max((begins[each] + seconds[each] for each in before), default=0.0)
            if earliest > begins[task.key]:
                begins[task.key], changed = earliest, True
            last[task.stream] = task.key
    return {key: begin + seconds[key] for key, begin in begins.items()}


@settings(deadline=None, max_examples=200)
@given(list_tasks())
def test_tasks_end_as_early_as_they_can(tasks: list[Task]) -> None:
    assert replay_tasks(tasks) == pytest.approx(search(tasks))


@settings(deadline=None, max_examples=100)
@given(list_tasks())
def test_streams_run_one_task_at_a_time_and_wait_for_what_is_awaited(tasks: list[Task]) -> None:
    ends = replay_tasks(tasks)
    of_stream = defaultdict[Hashable, list[Task]](list)
    for task in tasks:
        of_stream[task.stream].append(task)
        begin = ends[task.key] - task.seconds
        assert begin >= -1e-9
        assert all(begin >= ends[key] - 1e-9 for key in task.after if key in ends)
    for own in of_stream.values():
        for one, following in pairwise(own):
            assert ends[following.key] - following.seconds >= ends[one.key] - 1e-9
        assert max(ends[task.key] for task in own) >= sum(task.seconds for task in own) - 1e-9


@settings(deadline=None, max_examples=100)
@given(list_tasks())
def test_the_whole_lies_between_the_longest_stream_and_all_tasks_in_turn(tasks: list[Task]) -> None:
    work = defaultdict[Hashable, float](float)
    for task in tasks:
        work[task.stream] += task.seconds
    whole = max(replay_tasks(tasks).values())
    assert max(work.values()) - 1e-9 <= whole <= sum(work.values()) + 1e-9


def test_nothing_ends_never() -> None:
    assert replay_tasks([]) == {}


@pytest.mark.parametrize(
    "tasks",
    [
        [Task("a", 0, 1.0, ("b",)), Task("b", 1, 1.0, ("a",))],
        [Task("a", 0, 1.0, ("b",)), Task("b", 0, 1.0)],  # on one stream, a runs first
        [Task("a", 0, 1.0, ("a",))],
    ],
)
def test_tasks_that_wait_for_each_other_are_a_mistake(tasks: list[Task]) -> None:
    with pytest.raises(AssertionError, match="wait for each other"):
        replay_tasks(tasks)


def test_two_tasks_of_one_name_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="same key"):
        replay_tasks([Task("a", 0, 1.0), Task("a", 1, 2.0)])
