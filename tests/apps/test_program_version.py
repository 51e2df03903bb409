"""A changed program: its stored runs need a decision, are kept, or are set aside."""

from pathlib import Path

import pytest
import sqlalchemy as sa

import foretell
from foretell.core.app import App
from foretell.core.errors import ProgramChangedError, SpecError
from foretell.core.run import RunSpec, State

SWEEP = "parameters: {n: {values: [1, 2, 3, 4, 5]}}\n"


def load(folder: Path, command: str, more: str = "") -> App:
    (folder / "foretell.yaml").write_text(f"name: v\nshell: '{command}'\n{more}{SWEEP}")
    return foretell.load_app(folder / "foretell.yaml")


@pytest.fixture
def made(tmp_path: Path) -> App:
    """An app with all its runs made."""
    app = load(tmp_path, "echo $PARAM_n")
    assert foretell.generate(app).completed == 5
    return app


def test_a_changed_command_needs_a_decision(made: App, tmp_path: Path) -> None:
    changed = load(tmp_path, "echo again $PARAM_n")
    with pytest.raises(
        ProgramChangedError, match=r"5 stored runs(.|\n)*echo \$PARAM_n(.|\n)*--keep-runs(.|\n)*--start"
    ):
        foretell.generate(changed)
    with pytest.raises(ProgramChangedError):
        foretell.plan(changed)
    assert foretell.list_runs(changed).total == 5


@pytest.mark.parametrize("more", ["setup: [[mkdir, data]]\n", "environment: {THREADS: 2}\n", "working_directory: /\n"])
def test_other_changes_that_affect_the_time_need_a_decision(made: App, tmp_path: Path, more: str) -> None:
    with pytest.raises(ProgramChangedError, match=more.partition(":")[0]):
        foretell.generate(load(tmp_path, "echo $PARAM_n", more))


@pytest.mark.parametrize("more", ["time_limit: 1h\n", "repetitions: 1\n", "cleanup: [[rm, -rf, data]]\n"])
def test_other_changes_need_no_decision(made: App, tmp_path: Path, more: str) -> None:
    assert foretell.generate(load(tmp_path, "echo $PARAM_n", more)).completed == 0


def test_kept_runs_are_used_for_the_new_program(made: App, tmp_path: Path) -> None:
    changed = load(tmp_path, "echo again $PARAM_n")
    assert foretell.generate(changed, keep_runs=True).completed == 0
    assert foretell.generate(changed).completed == 0


def test_starting_over_sets_the_stored_runs_aside(made: App, tmp_path: Path) -> None:
    foretell.build(made)
    changed = load(tmp_path, "sleep 0.01; echo again $PARAM_n")
    assert len(foretell.plan(changed, start_over=True).specs) == 5
    assert foretell.generate(changed, start_over=True).completed == 5
    assert foretell.generate(changed).completed == 0
    now, aside = foretell.list_runs(changed), foretell.list_runs(changed, set_aside=True)
    assert (now.total, aside.total) == (5, 5)
    assert not {run.id for run in now.runs} & {run.id for run in aside.runs}
    assert "set aside" in foretell.predict(changed, {"n": 3})[0].warnings[0].text
    foretell.build(changed)
    with foretell.open_store(tmp_path / ".foretell/store.db") as store:
        assert set(store.model_run_ids("v")) == {run.id for run in now.runs}
    assert foretell.predict(changed, {"n": 3})[0].warnings == ()


def test_starting_over_without_a_changed_command(made: App) -> None:
    assert foretell.generate(made, start_over=True).completed == 5
    assert foretell.generate(made, start_over=True).completed == 5
    assert foretell.list_runs(made, set_aside=True).total == 10


def test_build_predict_verify_and_run_report_a_change(made: App, tmp_path: Path) -> None:
    foretell.build(made)
    changed = load(tmp_path, "echo again $PARAM_n")
    assert "has changed" in foretell.build(changed).warnings[0].text
    assert "has changed" in foretell.predict(changed, {"n": 3})[0].warnings[0].text
    with pytest.raises(ProgramChangedError):
        foretell.verify(changed, {"n": 3})
    with pytest.raises(ProgramChangedError):
        foretell.run(changed, foretell.JobRequest(configuration={"n": 3}))


def test_failed_runs_do_not_prevent_a_correction(tmp_path: Path) -> None:
    assert foretell.generate(load(tmp_path, "exit 1")).failed == 5
    assert foretell.generate(load(tmp_path, "exit 0"), retry_failed=True).completed == 5


def test_both_options_together_are_refused(made: App) -> None:
    with pytest.raises(SpecError, match="one of the two"):
        foretell.generate(made, keep_runs=True, start_over=True)


def test_imported_runs_have_the_current_version(made: App, tmp_path: Path) -> None:
    foretell.generate(made, start_over=True)
    (tmp_path / "more.csv").write_text("n,seconds\n9,0.1\n")
    store = tmp_path / ".foretell/store.db"
    foretell.import_runs(tmp_path / "more.csv", app="v", columns=foretell.Columns(elapsed="seconds"), store=store)
    assert foretell.list_runs(made).total == 6


def test_ids_of_a_first_version_are_unchanged() -> None:
    assert RunSpec(app="demo", parameters={"n": 1}).id == "85166bbfac4e36a0-0"
    assert RunSpec(app="demo", parameters={"n": 1}, version=1).id != "85166bbfac4e36a0-0"


def test_a_store_of_an_older_version_is_used(made: App, tmp_path: Path) -> None:
    """Its runs have no version, its app has a command."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / '.foretell/store.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE runs DROP COLUMN version"))
        connection.execute(sa.text("UPDATE foretell_version SET version_num = '0004'"))
        connection.execute(sa.text("UPDATE apps SET description = json_remove(description, '$.version')"))
    engine.dispose()
    assert foretell.generate(made).completed == 0
    assert foretell.list_runs(made, states=[State.COMPLETED]).total == 5
    with pytest.raises(ProgramChangedError):
        foretell.generate(load(tmp_path, "echo again $PARAM_n"))
