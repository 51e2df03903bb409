"""A shared store does not decide whether a local run is alive."""

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.runners import wait_for
from tests.security.conftest import User, Users

pytestmark = pytest.mark.slow

_APP = """
name: demo
shell: |
  echo started >> "$PARAM_app_dir/diary.txt"
  for _ in $(seq 800); do [ -e "$PARAM_app_dir/enough" ] && break; sleep 0.05; done
  echo ended >> "$PARAM_app_dir/diary.txt"
"""
_GENERATE = ("generate", "--wait-quiet", "no", "--store")
_GONE = "owner_pid = 999999, heartbeat_at = '2020-01-01 00:00:00'"


def _list_lines(app: Path) -> list[str]:
    diary = app.parent / "diary.txt"
    return diary.read_text().splitlines() if diary.exists() else []


def _change(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as connection:
        assert connection.execute(statement).rowcount == 1


@pytest.fixture
def app(victim: User) -> Path:
    return victim.write(victim.home / "work/foretell.yaml", _APP)


@pytest.fixture
def first(victim: User, shared: Path, app: Path) -> Iterator["subprocess.Popen[str]"]:
    """A campaign of the victim's that is under way."""
    with victim.start_foretell(*_GENERATE, shared, folder=app.parent) as process:
        try:
            wait_for(lambda: bool(_list_lines(app)) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            victim.write(app.parent / "enough", "")
            process.kill()


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE runs SET {_GONE}",
        f"UPDATE runs SET {_GONE}, owner_hostname = 'elsewhere'",
        f"UPDATE runs SET {_GONE}, owner_token = 'another'",
        "UPDATE runs SET state = 'interrupted', owner_token = NULL",
        "DELETE FROM runs",
    ],
    ids=["gone", "elsewhere", "another", "interrupted", "deleted"],
)
def test_a_row_does_not_end_a_live_run(
    victim: User, shared: Path, app: Path, first: "subprocess.Popen[str]", statement: str
) -> None:
    _change(shared, statement)
    second = victim.foretell(*_GENERATE, shared, folder=app.parent)
    assert second.returncode == 0, second
    assert _list_lines(app) == ["started"]
    assert first.poll() is None
    victim.write(app.parent / "enough", "")
    out, err = first.communicate(timeout=60)
    assert first.returncode == 0, (out, err)
    assert _list_lines(app) == ["started", "ended"]


def test_another_checkout_does_not_end_a_live_run(
    victim: User, shared: Path, app: Path, first: "subprocess.Popen[str]"
) -> None:
    _change(shared, f"UPDATE runs SET {_GONE}")
    quick = "name: demo\nshell: 'true'\n"
    elsewhere = victim.write(victim.home / "other/foretell.yaml", quick)
    victim.foretell(*_GENERATE, shared, "--keep-runs", folder=elsewhere.parent)
    assert first.poll() is None
    victim.write(app.parent / "enough", "")
    out, err = first.communicate(timeout=60)
    assert _list_lines(app) == ["started", "ended"], (out, err)


@pytest.mark.parametrize("statement", [None, "UPDATE runs SET owner_token = 'another'"], ids=["as it is", "changed"])
def test_runs_of_a_dead_campaign_are_ended_and_made_again(
    users: Users, shared: Path, app: Path, first: "subprocess.Popen[str]", statement: str | None
) -> None:
    first.kill()
    first.wait()
    if statement is not None:
        _change(shared, statement)
    with users.victim.start_foretell(*_GENERATE, shared, folder=app.parent) as second:
        wait_for(lambda: _list_lines(app) == ["started", "started"] or second.poll() is not None)
        users.victim.write(app.parent / "enough", "")
        out, err = second.communicate(timeout=60)
    assert second.returncode == 0, (out, err)
    assert _list_lines(app) == ["started", "started", "ended"]
    listed = users.victim.foretell("runs", "list", "demo", "--store", shared)
    assert "completed" in listed.stdout
