"""Jobs of the history as runs to fit models to."""

from typing import Any

from foretell.runtimes.history_runs import build_job_table

COUNT = 50


def make_rows(**parameters: list[Any]) -> list[dict[str, Any]]:
    """Jobs of two nodes, a value of each parameter for each."""
    job = {"elapsed_s": 10, "peak_memory_bytes": 2**20, "state": "completed", "nodes": 2, "cores": 9, "gpus": 2}
    return [
        {**job, "partition": "cpu", "parameters": {name: values[number] for name, values in parameters.items()}}
        for number in range(len(next(iter(parameters.values()))))
    ]


def list_parameters(rows: list[dict[str, Any]], described: tuple[str, ...] | None = None) -> set[str]:
    table = build_job_table(rows, described)
    return set(table.columns) - {"elapsed_s", "peak_memory_bytes", "state", "cores", "gpus", "nodes"}


def test_resources_are_those_of_one_node() -> None:
    table = build_job_table(make_rows(n=[1, 2]), None)
    assert [table[name] for name in ("cores", "gpus", "nodes")] == [[5, 5], [1, 1], [2, 2]]


def test_jobs_that_ended_before_they_had_nodes_count_as_one() -> None:
    table = build_job_table([{**row, "nodes": 0} for row in make_rows(n=[1, 2])], None)
    assert table["nodes"] == [1, 1]


def test_what_is_the_same_in_all_jobs_is_left_out() -> None:
    assert list_parameters(make_rows(n=[1, 2, 3], mode=["a", "a", "a"])) == {"n"}


def test_names_that_nearly_every_job_has_of_its_own_are_left_out() -> None:
    numbers = list(range(COUNT))
    rows = make_rows(size=numbers, folder=[f"out{number}" for number in numbers], mode=["a", "b"] * (COUNT // 2))
    assert list_parameters(rows) == {"size", "mode"}


def test_a_few_texts_may_all_differ() -> None:
    assert list_parameters(make_rows(word=["a", "b", "c"])) == {"word"}


def test_a_parameter_named_as_a_resource_gets_a_prefix() -> None:
    table = build_job_table(make_rows(cores=[1, 2]), None)
    assert (table["cores"], table["option_cores"]) == ([5, 5], [1, 2])


def test_of_an_app_that_is_described_only_its_own() -> None:
    assert list_parameters(make_rows(n=[1, 2], other=[3, 4]), described=("n",)) == {"n"}
