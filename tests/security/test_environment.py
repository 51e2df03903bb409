"""Passwords in the environment of jobs and in output."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Outcome
from tests.fake_slurm.cluster import FakeSlurm

import foretell
from foretell.core.errors import StoreError
from foretell.stores import open_store
from foretell.stores._engine import parse_address, render_place

_SECRETS = {
    "FORETELL_STORE": "postgresql://ada:hush-hush@db/x",
    "FORETELL_SITES": "/home/ada/sites.toml",
    "PGPASSWORD": "hush-hush",
    "PGPASSFILE": "/home/ada/.pgpass",
}
_APP = """
name: demo
shell: env > environment.txt
runner: {runner}
{more}
"""


def _run(folder: Path, runner: str, more: str = "") -> dict[str, str]:
    """The environment that a run had."""
    (folder / "foretell.yaml").write_text(_APP.format(runner=runner, more=more))
    result = foretell.generate(folder / "foretell.yaml", store=folder / "own.db", wait=True)
    assert result.completed == 1, result
    (path,) = folder.glob(".foretell/runs/demo/*/environment.txt")
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


@pytest.mark.parametrize("runner", ["local", "slurm"])
class TestRuns:
    @pytest.fixture(autouse=True)
    def _set(self, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {**_SECRETS, "OWN_TOKEN": "mine", "FORETELL_CACHE": "/cache"}.items():
            monkeypatch.setenv(name, value)

    def test_foretells_own_variables_are_not_passed_on(self, tmp_path: Path, runner: str) -> None:
        found = _run(tmp_path, runner)
        assert not _SECRETS.keys() & found.keys()
        assert "hush-hush" not in str(found)
        assert (found["OWN_TOKEN"], found["FORETELL_CACHE"]) == ("mine", "/cache")
        assert found["FORETELL_RUN_DIR"].startswith(str(tmp_path))

    def test_an_app_file_can_ask_for_them(self, tmp_path: Path, runner: str) -> None:
        found = _run(tmp_path, runner, more="environment: {PGPASSWORD: , FORETELL_SITES: other}")
        assert (found["PGPASSWORD"], found["FORETELL_SITES"]) == ("hush-hush", "other")
        assert "FORETELL_STORE" not in found

    def test_no_password_is_in_any_file(self, tmp_path: Path, runner: str) -> None:
        _run(tmp_path, runner, more="environment: {PGPASSWORD: }")
        files = [path for path in (tmp_path / ".foretell").rglob("*") if path.is_file()]
        files = [path for path in files if path.name != "environment.txt"]
        assert not [path for path in files if b"hush-hush" in path.read_bytes()]


class TestObserve:
    """A command that is observed is one of the user's, as a run is."""

    def test_foretells_own_variables_are_not_passed_on(self, tmp_path: Path, foretell: Callable[..., Outcome]) -> None:
        secrets = {**_SECRETS, "FORETELL_STORE": str(tmp_path / "hush-hush.db")}
        passed = {"OWN_TOKEN": "mine", "FORETELL_CACHE": str(tmp_path)}
        found = _observe(tmp_path, foretell, {**secrets, **passed})
        assert not secrets.keys() & found.keys()
        assert "hush-hush" not in str(found)
        assert passed.items() <= found.items()

    def test_marks_of_a_run_are_passed_on(self, tmp_path: Path, foretell: Callable[..., Outcome]) -> None:
        marks = {"FORETELL_RUN_DIR": str(tmp_path), "FORETELL_RUN_ID": "a-0", "PARAM_n": "1", "FORETELL_OWNER": "x"}
        assert marks.items() <= _observe(tmp_path, foretell, marks).items()


def _observe(folder: Path, foretell: Callable[..., Outcome], environment: dict[str, str]) -> dict[str, str]:
    """The environment that an observed command had."""
    done = foretell("observe", "--", "sh", "-c", "env > environment.txt", folder=folder, environment=environment)
    assert done.code == 0, done.err
    return dict(line.partition("=")[::2] for line in (folder / "environment.txt").read_text().splitlines())


@pytest.mark.parametrize("password", ["p@ss", "p@ss@word", "p/a@ss", "p:a@ss", "p?a@ss", "p#a@s%s", "%40x@y", "ä@ö"])
@pytest.mark.parametrize("query", ["", "?sslmode=disable", "?host=/run/a@b&connect_timeout=1"])
def test_a_password_is_masked_as_a_whole(password: str, query: str) -> None:
    url = parse_address(f"postgresql://ada:{password}@db.example/runs{query}")
    assert (url.host, url.database) == ("db.example", "runs")
    shown = render_place(url)
    assert shown.startswith("postgresql+psycopg://ada:***@db.example/runs")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ada:hush@127.0.0.1:1/x?port=abc",
        "postgresql://ada:hush@127.0.0.1:abc/x",
        "postgresql://ada:hush@127.0.0.1:1/x?host=a&host=b&port=1",
        "postgresql://ada:hush@127.0.0.1:1/x?sslmode=hush",
        "postgresql://ada:hu@sh@127.0.0.1:1/hush?password=hush",
        "mysql://ada:h@ush@127.0.0.1/x",
    ],
)
def test_errors_of_addresses_do_not_contain_the_password(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value).replace("?sslmode=hush", "").replace("/hush", "")
    assert "h@ush" not in str(caught.value)


def test_the_environment_of_this_process_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretell.core.run import build_environment

    monkeypatch.setenv("PGPASSWORD", "hush")
    assert build_environment(inherited=["PGPASSWORD"])["PGPASSWORD"] == "hush"
    assert "PGPASSWORD" not in build_environment()
    assert os.environ["PGPASSWORD"] == "hush"
