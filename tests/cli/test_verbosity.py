"""What ``-v`` logs: on stderr, and nothing without it."""

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_verbose_logs_which_store_is_read(run: Run) -> None:
    quiet, loud = (run(*words, "runs", "list", "--json") for words in ([], ["-v"]))
    assert quiet.err == ""
    assert "INFO foretell.stores" in loud.err
    assert "store.db" in loud.err
    assert loud.record == quiet.record
    assert run("runs", "list").err == ""


def test_very_verbose_logs_which_programs_are_called(run: Run) -> None:
    said = run("-vv", "sites", "discover")  # there is no Slurm here
    assert "DEBUG foretell.schedulers.slurm.commands: s" in said.err
    assert "DEBUG" not in run("-v", "sites", "discover").err
