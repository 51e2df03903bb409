"""Every command, from an app file to a report, on an app that takes milliseconds."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from foretell.core.run import Run

pytestmark = pytest.mark.slow

ESTIMATE = {"value", "low", "high", "level"}
PREDICTION = {"parameters", "allocation", "elapsed_s", "peak_memory_bytes", "request", "basic", "custom", "warnings"}
RUN = {"n", "cores", "elapsed_s", "peak_memory_bytes", "state", "exit_code", "reason", "scale", "app", "id"}


def test_init_writes_a_file_that_check_accepts(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell("init", "--command", "sh -c true --epochs 100", "--name", "mine", "--json", folder=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.record == {"app": "mine", "file": "foretell.yaml", "notes": []}
    checked = foretell("check", "--json", folder=tmp_path)
    assert checked.code == 0, checked.err
    assert checked.record.keys() >= {"ok", "file", "app", "scaled_down_runs", "full_scale_runs", "warning"}
    assert (checked.record["ok"], checked.record["app"]) == (True, "mine")


def test_init_says_what_of_the_command_does_not_follow_resources(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    typed = ["init", "--command", "srun -N 2 -n 64 ./solve --n 4", "--force"]
    outcome = foretell(*typed, folder=tmp_path)
    assert "Note: '-N 2' and '-n 64' stay as typed: changing resources does not" in " ".join(outcome.err.split())
    (note,) = foretell(*typed, "--json", folder=tmp_path).record["notes"]
    assert note.startswith("'-N 2' and '-n 64' stay")


def test_init_replaces_nothing_without_force(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "foretell.yaml").write_text("mine")
    outcome = foretell("init", "--command", "true", folder=tmp_path)
    assert outcome.code == 1
    assert "--force" in outcome.err
    assert (tmp_path / "foretell.yaml").read_text() == "mine"


def test_check_lists_mistakes_as_json(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "foretell.yaml").write_text("name: x\ncommand: [run, '{n}']\nrepetitions: many\n")
    outcome = foretell("check", "--json", folder=tmp_path)
    assert outcome.code == 1
    assert outcome.record["ok"] is False
    assert {mistake["line"] for mistake in outcome.record["mistakes"]} == {2, 3}


def test_check_counts_what_is_excluded_and_what_cannot_run_here(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "foretell.yaml").write_text(
        "name: x\nshell: 'true'\nparameters: {n: {values: [1, 2, 3]}}\n"
        "resources: {cores: [1, 100000]}\nrepetitions: 2\nwhere: n != 3 or cores > 1\n"
    )
    record = foretell("check", "--json", folder=tmp_path).record
    assert (record["scaled_down_runs"], record["full_scale_runs"], record["excluded_runs"]) == (0, 10, 2)
    ((reason, runs),) = record["impossible_here"].items()
    assert "100000 cores" in reason
    assert runs == 6
    shown = foretell("check", folder=tmp_path)
    assert shown.code == 0
    assert "2 excluded by where" in shown.out
    assert "cannot be made on this machine (it requests 100000 cores; there are" in " ".join(shown.err.split())
    dry = foretell("generate", "--dry-run", folder=tmp_path)
    assert "2 by where in the app file" in dry.out


def test_check_of_an_app_for_a_cluster_does_not_judge_it_by_this_machine(
    tmp_path: Path, foretell: Callable[..., Any]
) -> None:
    (tmp_path / "foretell.yaml").write_text("name: x\nshell: 'true'\nresources: {cores: 100000}\nrunner: slurm\n")
    assert foretell("check", "--json", folder=tmp_path).record["impossible_here"] == {}


@pytest.mark.parametrize("command", ["predict", "explain", "recommend", "verify", "run"])
def test_a_configuration_that_the_app_file_excludes_is_refused(run: Run, workspace: Path, command: str) -> None:
    with (workspace / "foretell.yaml").open("a") as file:
        file.write("where: n % 2 == 0\n")
    refused = run(command, "--set", "n=27")
    assert refused.code == 1
    assert "n % 2 == 0" in refused.err
    assert "n=27" in refused.err


def test_recommend_leaves_out_what_the_app_file_excludes(run: Run, workspace: Path) -> None:
    with (workspace / "foretell.yaml").open("a") as file:
        file.write("where: n < 30 or cores > 1\n")
    assert run("recommend", "--set", "n=26", "--site", "osc").code == 0
    refused = run("recommend", "--set", "n=36", "--site", "osc")  # the runs had one core, and no others are offered
    assert refused.code == 1
    assert "the app file excludes it: where n < 30 or cores > 1" in refused.err


@pytest.mark.parametrize("command", ["predict", "recommend"])
def test_a_configuration_that_only_failed_has_a_warning(run: Run, command: str) -> None:
    said = "this configuration failed once and never completed: no five today"
    failed, fine = (run(command, "--set", f"n={n}", "--json").record for n in (5, 6))
    warnings = [
        (record[0] if command == "predict" else record["picked"]["prediction"])["warnings"] for record in (failed, fine)
    ]
    assert said in [warning["text"] for warning in warnings[0]]
    assert said not in [warning["text"] for warning in warnings[1]]
    assert said in " ".join(re.sub("[│╮╯]", " ", run(command, "--set", "n=5").out).split())


def test_generate_reports_its_runs(built: Path) -> None:
    result = json.loads((built / "generate.json").read_text())
    assert result.keys() >= {"app", "completed", "failed", "recovered", "elapsed_s", "failures", "stopped"}
    assert (result["completed"], result["failed"]) == (9, 2)
    failures = {run["n"]: run for run in result["failures"]}
    assert (failures[5]["state"], failures[5]["exit_code"]) == ("failed", 3)
    assert failures[40]["state"] == "timed_out"


def test_dry_run_runs_nothing(workspace: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell("generate", "--dry-run", "--store", "new.db", "--jobs", "1", "--json", folder=workspace)
    assert outcome.code == 0, outcome.err
    assert outcome.record.keys() >= {"app", "specs", "runs", "stored", "failed", "left_out", "at_once", "expected_s"}
    assert (outcome.record["runs"], outcome.record["at_once"]) == (11, 1)
    assert not (workspace / "new.db").exists()


def test_what_is_stored_is_not_made_again(run: Run) -> None:
    outcome = run("generate", "--json")
    assert (outcome.record["completed"], outcome.record["failed"]) == (0, 0)


def test_with_nothing_to_run_only_that_is_said_and_no_models_are_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("not needed")

    monkeypatch.setattr("foretell.campaigns.campaign.preload", refuse)
    monkeypatch.setattr("foretell.campaigns.waiting.current_load", refuse)
    outcome = run("generate", "--wait-quiet", "1m")
    assert (outcome.code, outcome.err) == (0, "")
    assert [line.split("  ")[0] for line in outcome.out.splitlines()] == [
        "tiny: nothing is left to run",
        "Stored already",
        "Failed before",
    ]


def test_completed_runs_that_lack_something_are_counted_and_shown(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "foretell.yaml").write_text(
        "name: x\nshell: 'seq 100000'\nrepetitions: 2\nlog_limit: 64KB\n"
        "phases: {cnt: {pattern: '^(\\d+)$', combine: sum}}\n"
    )
    made = foretell("generate", folder=tmp_path)
    assert "Note on 2 completed runs: phase 'cnt': the output was cut to 64 KB" in " ".join(made.out.split())
    runs = foretell("runs", "list", "--json", folder=tmp_path).record["runs"]
    shown = foretell("runs", "show", runs[0]["id"], folder=tmp_path)
    assert "phase 'cnt': the output was cut to 64 KB; raise 'log_limit'" in " ".join(shown.out.split())


def test_failed_runs_are_not_fitted_and_timed_out_ones_are_longer_than(built: Path) -> None:
    card = json.loads((built / "build.json").read_text())
    assert card.keys() >= {"app", "policy", "judgements", "uses_custom", "warnings", "columns", "plots"}
    judgement = card["judgements"]["elapsed_s"]
    assert judgement.keys() >= {"winner", "why", "leaderboard", "expected", "pairs", "rows", "full_scale_rows"}
    assert (judgement["rows"], judgement["censored_rows"]) == (10, 1)
    assert {standing["family"] for standing in judgement["leaderboard"]} >= {"law", "gaussian process", "blend"}
    assert {"mae", "mape", "upp", "ov_mape", "wtm", "retry_cost"} <= judgement["expected"].keys()


def test_unknown_candidates_are_named_with_the_known(run: Run) -> None:
    outcome = run("build", "--candidates", "all")
    assert outcome.code > 0
    assert "no list of candidates named 'all'. Known: default, harp" in " ".join(outcome.err.split())


def test_build_writes_plots(built: Path) -> None:
    written = {Path(path).name for path in json.loads((built / "build.json").read_text())["plots"]}
    assert {"tiny-elapsed_s.png", "tiny-elapsed_s.svg"} <= written
    assert all((built / ".foretell" / "plots" / name).stat().st_size > 0 for name in written)


def test_rows_that_the_app_excludes_are_named(run: Run, workspace: Path) -> None:
    app, table = workspace / "foretell.yaml", workspace / "asked.csv"
    app.write_text(f"{app.read_text()}where: n < 30\n")
    table.write_text("n\n22\n50\n26\n")
    outcome = run("predict", "--from", "asked.csv")
    assert outcome.code == 1
    assert "where: found n=50 cores=1 gpus=0 nodes=1 in row 2; expected n < 30" in " ".join(outcome.err.split())
    assert " in row " not in run("predict", "--set", "n=50").err


def test_predict(run: Run) -> None:
    outcome = run("predict", "--set", "n=26", "--level", "80%", "--json")
    (prediction,) = outcome.record
    assert prediction.keys() >= PREDICTION
    assert prediction["elapsed_s"].keys() == ESTIMATE
    assert prediction["elapsed_s"]["level"] == pytest.approx(0.8)
    assert prediction["elapsed_s"]["low"] <= prediction["elapsed_s"]["value"] <= prediction["elapsed_s"]["high"]
    request = prediction["request"]
    assert request.keys() == {"walltime_s", "memory_bytes", "retries_walltime_s", "retries_memory"}
    assert request["walltime_s"] >= prediction["elapsed_s"]["value"]
    tries = [request["walltime_s"], *request["retries_walltime_s"]]
    assert tries == sorted(set(tries))
    assert len(tries) > 1


def test_predict_says_when_it_was_never_measured(run: Run) -> None:
    (inside,), (outside,) = (run("predict", "--set", f"n={n}", "--json").record for n in (26, 5000))
    assert outside["warnings"]
    assert not any("n" in warning["text"].split() for warning in inside["warnings"])


def test_predict_by_name_from_another_folder(workspace: Path, tmp_path: Path, foretell: Callable[..., Any]) -> None:
    store = str(workspace / ".foretell" / "store.db")
    outcome = foretell("predict", "tiny", "--set", "n=26", "--json", "--store", store, folder=tmp_path)
    assert outcome.code == 0, outcome.err
    by_environment = foretell(
        "predict", "tiny", "--set", "n=26", "--json", folder=tmp_path, environment={"FORETELL_STORE": store}
    )
    assert by_environment.record == outcome.record


def test_recommend_here_writes_a_shell_script(run: Run, workspace: Path) -> None:
    outcome = run("recommend", "--set", "n=26", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.record.keys() == {"app", "picked", "why", "offers", "rejections", "script"}
    assert outcome.record["script"] == "job.sh"
    assert (workspace / "job.sh").read_text().startswith("#!")


def test_recommend_for_a_cluster_writes_a_job_script(run: Run, workspace: Path) -> None:
    words = ["recommend", "--set", "n=26", "--site", "osc", "--max-time", "2h", "--max-cost", "5", "--account", "PAS1"]
    outcome = run(*words, "--json")
    assert outcome.code == 0, outcome.err
    picked = outcome.record["picked"]
    assert picked in outcome.record["offers"]
    assert picked.keys() >= {"site", "prediction", "cost", "cost_at_request", "currency", "risk", "pareto"}
    script = (workspace / "job.sbatch").read_text()
    assert "#SBATCH --account=PAS1\n" in script
    assert re.search(r"^#SBATCH --time=\d\d:\d\d:00$", script, re.MULTILINE)


def test_recommend_within_impossible_limits(run: Run, workspace: Path) -> None:
    outcome = run("recommend", "--set", "n=26", "--site", "osc", "--max-time", "1ms")
    assert outcome.code == 1
    assert "--max-time" in outcome.err or "limit" in outcome.err
    assert not (workspace / "job.sbatch").exists()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["recommend", "--set", "n=26"], "job.sh"),
        (["recommend", "--set", "n=26", "--site", "osc"], "job.sbatch"),
        (["recommend", "--set", "n=26", "--output", "other.sh"], "other.sh"),
        (["report", "--set", "n=26"], "tiny-report.html"),
    ],
)
def test_a_file_of_the_users_own_is_kept(run: Run, workspace: Path, words: list[str], name: str) -> None:
    own = "#!/bin/bash\n#SBATCH --time=1\nmy work\n"
    (workspace / name).write_text(own)
    kept = run(*words)
    assert kept.code == 1
    assert (workspace / name).read_text() == own
    assert name in kept.err
    assert "--output" in kept.err
    assert "--force" in kept.err
    assert run(*words, "--force").code == 0
    assert "my work" not in (workspace / name).read_text()


@pytest.mark.parametrize(
    ("words", "name"),
    [(["recommend", "--set", "n=26"], "job.sh"), (["report", "--set", "n=26"], "tiny-report.html")],
)
def test_what_foretell_wrote_is_replaced_until_it_is_edited(
    run: Run, workspace: Path, words: list[str], name: str
) -> None:
    assert run(*words).code == 0
    assert run(*words).code == 0
    with (workspace / name).open("a") as file:
        file.write("# mine\n")
    assert run(*words).code == 1
    assert (workspace / name).read_text().endswith("# mine\n")


def test_a_recommendation_is_printed_although_its_script_is_not_written(run: Run, workspace: Path) -> None:
    (workspace / "job.sbatch").write_text("mine")
    words = ["recommend", "--set", "n=26", "--site", "osc"]
    assert "ask for" in run(*words).out
    record = run(*words, "--json").record
    assert record["picked"]
    assert record["script"] is None


def test_verify_keeps_its_run(run: Run) -> None:
    outcome = run("verify", "--set", "n=22", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.record.keys() == {"prediction", "run", "time_inside", "memory_inside"}
    assert outcome.record["run"]["n"] == 22
    assert run("runs", "show", outcome.record["run"]["id"], "--json").record == outcome.record["run"]
    again = run("verify", "--set", "n=22", "--json")
    assert again.record["run"]["repetition"] == 1
    text = "the model was built before 2 runs came in; 'foretell build tiny' learns from them"
    assert text in [warning["text"] for warning in run("predict", "--set", "n=22", "--json").record[0]["warnings"]]
    picked = run("recommend", "--set", "n=22", "--json").record["picked"]
    assert text in [warning["text"] for warning in picked["prediction"]["warnings"]]


def test_verify_of_a_run_that_fails(run: Run) -> None:
    outcome = run("verify", "--set", "n=5")
    assert outcome.code == 1
    assert "did not complete" in outcome.out


def test_report_is_one_page(run: Run, workspace: Path) -> None:
    outcome = run("report", "--set", "n=26", "--site", "osc", "--json")
    assert outcome.record == {"app": "tiny", "file": "tiny-report.html"}
    page = (workspace / "tiny-report.html").read_text()
    assert "tiny" in page
    assert not re.search(r"<(script|link|img|iframe)\b[^>]*https?://", page)


def test_runs_can_be_listed_and_shown(run: Run) -> None:
    page = run("runs", "list", "--limit", "3", "--json").record
    assert (page["total"], len(page["runs"])) == (11, 3)
    failed = run("runs", "list", "--state", "failed", "--state", "timed_out", "--json").record
    assert {record["n"] for record in failed["runs"]} == {5, 40}
    run_id = next(record["id"] for record in failed["runs"] if record["n"] == 5)
    shown = run("runs", "show", run_id[:9], "--json").record
    assert shown.keys() >= RUN
    assert "no five today" in run("runs", "show", run_id[:9]).out


def test_exported_runs_can_be_imported(run: Run, workspace: Path) -> None:
    assert run("runs", "export", "--output", "runs.csv", "--state", "completed").code == 0
    frame = pd.read_csv(workspace / "runs.csv")
    assert len(frame) == 9
    assert set(frame.columns) >= RUN
    assert run("runs", "export", "--output", "runs.parquet").code == 0
    assert len(pd.read_parquet(workspace / "runs.parquet")) == 11
    frame[["n", "elapsed_s"]].to_csv(workspace / "few.csv", index=False)
    words = ["runs", "import", "few.csv", "--app", "copy", "--elapsed", "elapsed_s", "--json"]
    first, second = run(*words).record, run(*words).record
    assert first.keys() == {"app", "read", "added", "already_there", "parameters", "skipped"}
    assert (first["added"], second["added"], second["already_there"]) == (9, 0, 9)


def test_export_prints_csv_or_json(run: Run, workspace: Path) -> None:
    (workspace / "out.csv").write_text(run("runs", "export").out)
    assert len(pd.read_csv(workspace / "out.csv")) == 11
    assert len(run("runs", "export", "--json").record) == 11


def test_delete_asks_first(run: Run) -> None:
    assert run("runs", "delete", "--state", "failed").code != 0
    assert run("runs", "list", "--json").record["total"] == 11
    deleted = run("runs", "delete", "--state", "failed", "--yes", "--json").record
    assert (deleted["deleted"], len(deleted["ids"]), deleted["under_way"]) == (1, 1, 0)
    assert run("runs", "list", "--json").record["total"] == 10


def test_delete_takes_ids_or_how_they_begin(run: Run) -> None:
    first, second, *_ = (one["id"] for one in run("runs", "list", "--json").record["runs"])
    done = run("runs", "delete", first[:10], second, first, "--yes", "--json").record
    assert set(done["ids"]) == {first, second}
    assert not {first, second} & {one["id"] for one in run("runs", "list", "--json").record["runs"]}
    assert "no run named" in run("runs", "delete", first, "--yes").err


@pytest.mark.parametrize("words", [[], ["--yes"], ["3f2a", "--failed"], ["3f2a", "--app", "tiny"]])
def test_delete_wants_ids_or_else_a_kind_of_runs(run: Run, words: Any) -> None:
    outcome = run("runs", "delete", *words)
    assert outcome.code == 1
    assert "ids of runs, or else --app" in outcome.err


def test_sites(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    sites = foretell("sites", "list", "--json", folder=tmp_path).record
    assert {"local", "osc", "tacc"} <= {site["name"] for site in sites}
    site = foretell("sites", "show", "osc", "--json", folder=tmp_path).record
    assert site.keys() >= {"name", "title", "scheduler", "node_types", "currency", "as_of", "source"}
    assert all(node.keys() >= {"name", "cores", "memory_bytes", "price_per_core_h"} for node in site["node_types"])


@pytest.mark.parametrize(
    "words",
    [
        "check",
        "generate --dry-run",
        "generate",
        "predict --set n=26",
        "predict --set n=5000",
        "recommend --set n=26",
        "recommend --set n=26 --site osc",
        "verify --set n=22",
        "report",
        "runs list",
        "sites list",
        "sites show osc",
        "sites show local",
    ],
)
def test_output_fits_the_terminal(words: str, run: Run) -> None:
    outcome = run(*words.split())
    assert outcome.code == 0, outcome.err
    lines = f"{outcome.out}\n{outcome.err}".splitlines()
    assert [line for line in lines if len(line) > 100 and " " in line.strip() and "/" not in line] == []
    assert "Traceback" not in outcome.err
    assert "Warning" not in outcome.err


_HOSTILE = r"""
name: hostile
command: [sh, -c, "printf '\\033]0;owned\\007 last words \\033[31m\\n' >&2; exit 3", "{x}"]
parameters:
  x: {values: ["\e[2Jgone\a"]}
"""


def test_nothing_from_a_file_or_a_run_controls_the_terminal(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "foretell.yaml").write_text(_HOSTILE)
    made = foretell("generate", folder=tmp_path)
    (run,) = foretell("runs", "list", "--json", folder=tmp_path).record["runs"]
    shown = [made, foretell("runs", "list", folder=tmp_path), foretell("runs", "show", run["id"], folder=tmp_path)]
    (tmp_path / "foretell.yaml").write_text(_HOSTILE + '  "\\e[31m\\a\\bkey": {values: [1]}\n')
    shown.append(foretell("check", folder=tmp_path))
    shown.append(foretell("check", "no\x1b[31mwhere.yaml", folder=tmp_path))
    for outcome in shown:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", outcome.out + outcome.err)
    assert "last words" in " ".join(made.out.split())
    assert "owned" not in made.out


def test_the_table_of_failures_has_the_last_line_that_was_printed(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "foretell.yaml").write_text("name: x\nshell: 'echo out; echo the disk is full >&2; exit 4'\n")
    assert "the disk is full" in " ".join(foretell("generate", folder=tmp_path).out.split())
