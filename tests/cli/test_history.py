"""``foretell history`` as its users call it: read, read again, group, learn, report."""

import gzip
import os
import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell.history.api import import_history
from foretell.stores.job_history import JobHistory

NAMES = (
    "JobID", "JobIDRaw", "State", "Submit", "User", "Account", "Partition", "ElapsedRaw", "TimelimitRaw", "AllocTRES",
    "NNodes", "NTasks", "TotalCPU", "MaxRSS", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip
JOBS = 60


def _line(**fields: object) -> str:
    return "|".join(str(fields.get(name, "")) for name in NAMES) + "\n"


def build_text(jobs: int = JOBS) -> str:
    """Time grows with epochs and falls with cores; memory grows with epochs."""
    draw = random.Random(3)
    lines = ["|".join(NAMES) + "\n"]
    for number in range(100, 100 + jobs):
        epochs, cores = draw.choice((10, 20, 40, 80)), draw.choice((4, 8))
        elapsed = int((30 + 240 * epochs / cores) * draw.uniform(0.95, 1.05))
        clock = f"00:{elapsed * 3 // 60 % 60:02d}:{elapsed * 3 % 60:02d}"
        lines.append(
            _line(
                JobID=number, JobIDRaw=number, State="COMPLETED" if number % 9 else "FAILED", User="ada", Account="a1",
                Submit=f"2025-03-01T10:{number % 60:02d}:00", Partition="cpu", ElapsedRaw=elapsed, TimelimitRaw=600,
                AllocTRES=f"cpu={cores},mem={4 * cores}G,node=1", NNodes=1, TotalCPU=clock,
                JobName=f"train_run{number}", WorkDir=f"/u/ada/{number}", SubmitLine=f"sbatch t.sh --epochs {epochs}",
            )
        )  # fmt: skip
        lines.append(_line(JobID=f"{number}.batch", State="COMPLETED", NTasks=1, NNodes=1, MaxRSS=f"{2 + epochs}000K"))
    return "".join(lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.txt").write_text(build_text())
    return tmp_path


def test_reading_twice_changes_nothing_and_reads_nothing(folder: Path, foretell: Callable[..., Any]) -> None:
    first = foretell("history", "import", "jobs.txt", "--json", folder=folder).record
    assert (first["lines"], first["jobs"], first["changed"], first["complaints"]) == (2 * JOBS, JOBS, JOBS, [])
    again = foretell("history", "import", "jobs.txt", "--json", folder=folder).record
    assert (again["lines"], again["changed"], again["read_before"]) == (0, 0, 2 * JOBS + 1)


def test_the_same_jobs_packed_or_in_a_longer_file_are_known(folder: Path, foretell: Callable[..., Any]) -> None:
    foretell("history", "import", "jobs.txt", folder=folder)
    (folder / "jobs.txt.gz").write_bytes(gzip.compress(build_text(JOBS + 2).encode()))
    found = foretell("history", "import", "jobs.txt.gz", "--json", folder=folder).record
    assert (found["jobs"], found["changed"]) == (JOBS + 2, 2)
    again = foretell("history", "import", "jobs.txt.gz", "--json", folder=folder).record
    assert (again["jobs"], again["read_before"]) == (0, 2 * JOBS + 5)


def test_a_packed_file_that_is_cut_off_is_reported_and_keeps_what_was_read(
    folder: Path, foretell: Callable[..., Any]
) -> None:
    packed = gzip.compress(build_text(3000).encode())
    (folder / "jobs.gz").write_bytes(packed[: len(packed) // 2])
    outcome = foretell("history", "import", "jobs.gz", folder=folder)
    assert outcome.code == 1
    assert "jobs.gz: cannot be read to its end" in outcome.err


def test_killed_in_the_middle_it_resumes_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction for each block; the third one fails, as if we were killed there."""
    monkeypatch.setattr("foretell.history.api._BATCH", 1)
    monkeypatch.setattr("foretell.history.accounting_sources.BLOCK", 2000)
    store, add, calls = folder / "s.db", JobHistory.add, []

    def fail(self: Any, batches: Any, assignments: Any, marks: Any) -> Any:
        calls.append(sum(len(rows.rows) for rows in batches))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return add(self, batches, assignments, marks)

    with monkeypatch.context() as patched:
        patched.setattr(JobHistory, "add", fail)
        with pytest.raises(KeyboardInterrupt):
            import_history([folder / "jobs.txt"], store=store)
    kept = sum(calls[:2])
    result = import_history([folder / "jobs.txt"], store=store)
    assert 0 < kept < JOBS
    assert (result.jobs, result.changed, result.lines) == (JOBS - kept, JOBS - kept, 2 * (JOBS - kept))


def test_lines_that_were_not_understood_are_reported_and_read_again_next_time(
    folder: Path, foretell: Callable[..., Any]
) -> None:
    with (folder / "jobs.txt").open("a") as file:
        file.write(
            _line(JobID=7, JobIDRaw=7, State="LOST", ElapsedRaw=3) + _line(JobID="8", JobIDRaw="8", State="FAILED")
        )
    outcome = foretell("history", "import", "jobs.txt", folder=folder)
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert (
        f"1 line was left out: Slurm's state 'LOST' is unknown; please report it; the first: line {2 * JOBS + 2}"
        in text
    )
    again = foretell("history", "import", "jobs.txt", "--json", folder=folder).record
    assert (again["jobs"], again["changed"], len(again["complaints"])) == (JOBS + 1, 0, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "none.txt"], "no file named 'none.txt'"),
        (["import", "foretell.txt"], "does not name JobID"),
        (["import", "jobs.txt", "--rules", "none.toml"], "no rules file named"),
        (["import", "jobs.txt", "--since", "yesterday"], "a day or moment such as 2025-01-31"),
        (["report", "--by", "colour"], "no job of the history matches"),
        (["report", "--site", "nowhere"], "no site named 'nowhere'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(
    folder: Path, foretell: Callable[..., Any], words: list[str], message: str
) -> None:
    (folder / "foretell.txt").write_text("a|b\n1|2\n")
    outcome = foretell("history", *words, folder=folder)
    assert (outcome.code, outcome.out) == (1, "")
    assert message in outcome.err


def test_rules_group_anew_and_hold_for_later_imports(folder: Path, foretell: Callable[..., Any]) -> None:
    foretell("history", "import", "jobs.txt", folder=folder)
    assert [app["app"] for app in foretell("history", "apps", "--json", folder=folder).record] == ["ada.train_run"]
    (folder / "rules.toml").write_text('[[rules]]\napp = "net"\nmatch = { name = "^train_run(?P<number>1\\\\d+)" }\n')
    grouped = foretell("history", "group", "--rules", "rules.toml", "--json", folder=folder).record
    assert [(app["app"], app["jobs"]) for app in grouped] == [("net", JOBS)]
    (folder / "more.txt").write_text(build_text(JOBS + 1))
    foretell("history", "import", "more.txt", folder=folder)
    assert [app["jobs"] for app in foretell("history", "apps", "--json", folder=folder).record] == [JOBS + 1]
    back = foretell("history", "group", "--json", folder=folder).record
    assert [app["app"] for app in back] == ["ada.train_run"]


def test_without_jobs_it_says_where_they_come_from(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell("history", "apps", folder=tmp_path)
    assert (outcome.code, "foretell history import" in outcome.out) == (0, True)


def test_an_application_of_the_history_can_be_built_and_asked(folder: Path, foretell: Callable[..., Any]) -> None:
    foretell("history", "import", "jobs.txt", folder=folder)
    built = foretell("build", "ada.train_run", "--json", folder=folder)
    assert built.code == 0, built.err
    failed = sum(number % 9 == 0 for number in range(100, 100 + JOBS))
    assert f"learned from {JOBS - failed} jobs of the cluster's history" in [
        warning["text"] for warning in built.record["warnings"]
    ]
    asked = ["predict", "ada.train_run", "--set", "epochs=60", "--cores", "8", "--json"]
    (answer,) = foretell(*asked, folder=folder).record
    assert answer["elapsed_s"]["value"] == pytest.approx(30 + 240 * 60 / 8, rel=0.1)
    assert answer["peak_memory_bytes"]["value"] == pytest.approx(62_000 * 1024, rel=0.05)


def test_jobs_that_only_differ_by_unknown_facts_are_still_fitted(folder: Path, foretell: Callable[..., Any]) -> None:
    names = "JobID|State|User|JobName|ElapsedRaw\n"
    draw = random.Random(1)
    rows = [f"{number}|COMPLETED|bob|post|{draw.randint(80, 120)}\n" for number in range(1, 31)]
    (folder / "post.txt").write_text(names + "".join(rows))
    foretell("history", "import", "post.txt", folder=folder)
    assert foretell("build", "bob.post", folder=folder).code == 0
    (answer,) = foretell("predict", "bob.post", "--json", folder=folder).record
    assert 80 <= answer["elapsed_s"]["value"] <= 120


def test_the_report_in_words_in_money_and_as_a_plot(folder: Path, foretell: Callable[..., Any]) -> None:
    foretell("history", "import", "jobs.txt", folder=folder)
    outcome = foretell("history", "report", "--by", "app", "--site", "osc", "--plot", "plots/w.svg", folder=folder)
    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 100
    assert "ada.train_run" in outcome.out
    assert "$" in outcome.out
    assert "<svg" in (folder / "plots/w.svg").read_text()
    record = foretell("history", "report", "--user", "ada", "--json", folder=folder).record
    assert (record["currency"], record["total"]["jobs"]) == ("", JOBS)
    assert record["total"]["at_best"] < record["total"]["paid"]


SACCT = """#!{python}
import pathlib, sys
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
with open("calls.txt", "a") as file:
    print(*sys.argv[1:], file=file)
names = words["--format"].split(",")
job = {{"JobID": "5", "JobIDRaw": "5", "Cluster": "c", "User": "ada", "State": "COMPLETED", "ElapsedRaw": "9",
        "Submit": "2025-01-02T00:00:00", "JobName": "a|b"}}
if words["--starttime"] <= "2025-01-02" < words["--endtime"]:
    print("|".join(job.get(name, "") for name in names))
"""


def test_sacct_is_asked_in_windows_and_never_twice_for_what_is_past(folder: Path, foretell: Callable[..., Any]) -> None:
    program = folder / "bin" / "sacct"
    program.parent.mkdir()
    program.write_text(SACCT.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    environment = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["history", "import", "--since", "2025-01-01", "--until", "2025-01-31", "--user", "ada", "--json"]
    first = foretell(*words, folder=folder, environment=environment).record
    assert (first["jobs"], first["changed"], first["read_before"]) == (1, 1, 0)
    calls = (folder / "calls.txt").read_text().splitlines()
    assert len(calls) == 5  # weeks, from the Monday before
    assert all("--user=ada" in call and "--duplicates" in call and "--noheader" in call for call in calls)
    again = foretell(*words, folder=folder, environment=environment).record
    assert (again["jobs"], again["read_before"]) == (0, 5)
    assert len((folder / "calls.txt").read_text().splitlines()) == 5


WEEKS = """#!{python}
import sys
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
day = words["--starttime"][:10]
with open("calls.txt", "a") as file:
    print(day, file=file)
names = words["--format"].split(",")
number = day.replace("-", "")
states = ("COMPLETED", "NEW_WORD") if open("unknown.txt").read() else ("COMPLETED", "COMPLETED")
for place, state in enumerate(states):
    job = {{"JobID": f"{{number}}{{place}}", "JobIDRaw": f"{{number}}{{place}}", "Cluster": "c", "User": "ada",
            "State": state, "ElapsedRaw": "9", "Submit": f"{{day}}T00:00:00", "JobName": "a"}}
    print("|".join(job.get(name, "") for name in names))
"""


def test_every_week_with_an_unknown_state_is_read_again_until_it_is_known(
    folder: Path, foretell: Callable[..., Any]
) -> None:
    program = folder / "bin" / "sacct"
    program.parent.mkdir()
    program.write_text(WEEKS.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    environment = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["history", "import", "--since", "2025-01-06", "--until", "2025-02-03", "--json"]
    (folder / "unknown.txt").write_text("yes")
    for _ in range(2):
        found = foretell(*words, folder=folder, environment=environment).record
        assert (found["jobs"], found["read_before"], found["complaints"][0]["count"]) == (4, 0, 4)
    (folder / "unknown.txt").write_text("")
    fixed = foretell(*words, folder=folder, environment=environment).record
    assert (fixed["jobs"], fixed["changed"], fixed["complaints"]) == (8, 4, [])
    assert foretell(*words, folder=folder, environment=environment).record["read_before"] == 4
    assert len((folder / "calls.txt").read_text().splitlines()) == 3 * 4


def test_a_model_older_than_later_jobs_says_so_in_text_and_json(folder: Path, foretell: Callable[..., Any]) -> None:
    foretell("history", "import", "jobs.txt", folder=folder)
    foretell("build", "ada.train_run", folder=folder)
    asked = ["ada.train_run", "--set", "epochs=60", "--cores", "8"]
    assert foretell("predict", *asked, "--json", folder=folder).record[0]["warnings"] == []
    foretell("history", "import", "jobs.txt", folder=folder)
    assert foretell("predict", *asked, "--json", folder=folder).record[0]["warnings"] == []
    (folder / "more.txt").write_text(build_text(JOBS + 40))
    added = foretell("history", "import", "more.txt", "--json", folder=folder).record["changed"]
    failed = sum(number % 9 == 0 for number in range(100 + JOBS, 100 + JOBS + 40))
    text = f"{added - failed} jobs of the cluster's history came in; 'foretell build ada.train_run' learns from them"
    assert text in foretell("predict", *asked, "--json", folder=folder).record[0]["warnings"][0]["text"]
    assert text in " ".join(foretell("predict", *asked, folder=folder).out.replace("│", " ").split())
    offers = ["recommend", "ada.train_run", "--set", "epochs=60", "--site", "osc"]
    picked = foretell(*offers, "--json", folder=folder).record["picked"]
    assert text in picked["prediction"]["warnings"][0]["text"]
    assert text in " ".join(foretell(*offers, folder=folder).out.split())
    foretell("build", "ada.train_run", folder=folder)
    assert foretell("predict", *asked, "--json", folder=folder).record[0]["warnings"] == []


def test_without_sacct_it_says_so(folder: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell("history", "import", folder=folder, environment={"PATH": str(folder)})
    assert outcome.code == 1
    assert "'sacct' was not found" in outcome.err
