"""Whatever people, files and machines do wrong: exit code, the place, the remedy; no traceback, nothing lost."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foretell as package
from foretell.core.errors import ImportDataError

pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.DtypeWarning")
SOON = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
APP = "name: good\ncommand: [run, '{n}', '{word}']\nparameters:\n  n: {sd: [1, 2], fs: [8]}\n  word: {values: [a, b]}\n"
ROWS = "n,word,seconds\n" + "".join(f"{n},{'ab'[n % 2]},{n / 10}\n" for n in range(1, 13))
IMPORT = ["runs", "import", "past.csv", "--app", "past", "--elapsed", "seconds"]


def assert_refused(outcome: Any, *expected: str, code: tuple[int, ...] = (1, 2)) -> None:
    assert outcome.code in code, outcome.out
    assert "Traceback" not in outcome.err
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", outcome.err).split())
    for part in expected:
        assert part in text


def dump_store(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / ".foretell" / "store.db")) as connection:
        return list(connection.iterdump())


def assert_answered(outcome: Any) -> None:
    """Taken or refused, but never with a traceback; a refusal says something."""
    assert outcome.code in (0, 1, 2)
    assert "Traceback" not in outcome.err
    assert outcome.code == 0 or len(outcome.err.strip() or outcome.out.strip()) > 20


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, foretell: Callable[..., Any]) -> Path:
    """A folder with an app file and imported runs; look, but do not write."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "foretell.yaml").write_text(APP)
    (folder / "past.csv").write_text(ROWS)
    assert foretell(*IMPORT, folder=folder).code == 0
    return folder


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stored, tmp_path / "folder")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("predict past --set n=1 --level x", ["--level", "'x'", "5%"]),
        ("predict past --set n=1 --risk 7", ["--risk", "'7'", "5%"]),
        ("predict past --set n=1 --risk nan", ["--risk", "5%"]),
        (
            "predict past --set n=1 --risk 0%",
            ["--risk", "'0%'", "a share above 0 % and below 100 %; write for example 5%"],
        ),
        ("predict past --set foo", ["--set", "'foo'", "NAME=VALUE"]),
        ("predict past --set =1", ["--set", "'=1'", "NAME=VALUE"]),
        ("predict past --set n=1 --from past.csv", ["--set", "--from"]),
        ("predict past --set n=1", ["past", "foretell build"]),
        ("predict past --set n=1 --cores 0", ["--cores", "1"]),
        ("predict past --from nowhere.csv", ["nowhere.csv", "no such file"]),
        ("predict past --from .", [".", "expected CSV"]),
        ("predict nobody --set n=1", ["'nobody'", "past", "runs import"]),
        ("recommend past --max-time soon", ["--max-time", "'soon'", "1h30m"]),
        ("recommend past --max-cost much", ["--max-cost", "'much'", "0.25"]),
        ("recommend past --max-cost -1", ["--max-cost", "0.25"]),
        ("recommend past --prefer luck", ["prefer", "'luck'", "cheapest"]),
        ("run past --prefer quick", ["prefer", "'quick'", "cheapest"]),
        ("run past --option qos=long", ["option", "'qos'", "--site"]),
        ("run past --sample --dry-run", ["sample", "--site"]),
        ("recommend past --site nowhere", ["'nowhere'", "osc", "local"]),
        ("recommend past --site mine --site-file nowhere.toml", ["nowhere.toml"]),
        ("build past --policy luck", ["'luck'", "mae"]),
        ("build nobody", ["'nobody'", "past"]),
        ("build good", ["'good'"]),
        ("build nowhere/foretell.yaml", ["nowhere/foretell.yaml"]),
        ("generate past", ["past", "command"]),
        ("generate --budget soon", ["--budget", "'soon'", "10m"]),
        ("generate --budget -5", ["--budget", "10m"]),
        ("generate --budget 20", ["--budget", "'20'", "20m"]),
        ("run past --memory 4", ["--memory", "'4'", "4GB"]),
        ("predict past --set n=1 --set n=2 --set word=a", ["--set", "'n' 2 times", "once"]),
        ("generate --runner slurm --option qos=a --option qos=b", ["--option", "'qos' 2 times", "once"]),
        ("generate --partition cpu", ["partition", "'cpu'", "--runner slurm"]),
        ("generate --sample --option clusters=c", ["sample", "cluster", "'c'", "--runner slurm"]),
        ("generate --option time=10", ["--option", "'time'", "time_limit in the app file"]),
        ("generate --runner slurm --option array=0-9", ["--option", "'array'", "automatically"]),
        ("run past --option partition=cpu", ["--option", "'partition'", "slurm.partition in the app file"]),
        ("generate --runner slurm --option --qos=long --option mem=1G", ["'--qos'", "qos=long", "'mem'", "resources"]),
        ("generate --jobs 0", ["--jobs", "1"]),
        ("generate --jobs many", ["--jobs", "integer"]),
        ("verify past --set n=1", ["past"]),
        ("runs list past --state x", ["--state", "'x'", "completed"]),
        ("runs list past --limit 0", ["--limit"]),
        ("runs show zzz", ["'zzz'", "runs list"]),
        ("runs export past --output past.xyz", ["past.xyz", ".csv"]),
        ("runs delete --app nobody --yes", ["'nobody'", "past"]),
        ("runs import past.csv --app x --elapsed nosuch", ["'nosuch'", "'seconds'"]),
        ("runs import past.csv --app x --elapsed seconds --drop nosuch", ["'nosuch'", "'seconds'"]),
        ("runs import past.csv --app x --elapsed word", ["word", "no usable row"]),
        ("runs import past.csv --app x/y --elapsed seconds", ["'x/y'", "letters"]),
        ("runs import past.csv --app x --elapsed seconds --elapsed-unit fortnight", ["--elapsed-unit", "fortnight"]),
        ("runs import past.csv --app x --elapsed seconds --memory-unit 1X", ["--memory-unit", "1X"]),
        ("runs import nowhere.csv --app x --elapsed s", ["nowhere.csv", "no such file"]),
        ("sites show nowhere", ["'nowhere'", "osc"]),
        ("check nowhere.yaml", ["nowhere.yaml"]),
        ("check .", ["."]),
        ("check past.csv", ["past.csv", "mistake"]),
        ("nosuchcommand", ["nosuchcommand"]),
        ("runs list --nosuchoption", ["--nosuchoption"]),
        ("runs list past --store past.csv", ["past.csv", "--store"]),
        ("runs list past --store .", ["--store"]),
        ("runs list past --store mysql://host/db", ["mysql", "--store"]),
        ("runs list past --store postgresql://user:secret@127.0.0.1:1/db", ["127.0.0.1", "server"]),
        ("runs list past --store past.csv/below/store.db", ["past.csv/below", "--store"]),
        ("init --command true --directory past.csv/below", ["past.csv/below"]),
        ("init --command true --directory /proc/nowhere", ["/proc/nowhere"]),
        ("init --force", ["--command"]),
    ],
)
def test_a_mistake_at_the_command_line(
    words: str, expected: list[str], foretell: Callable[..., Any], folder: Path
) -> None:
    before = dump_store(folder)
    outcome = foretell(*words.split(), folder=folder)
    assert_refused(outcome, *expected)
    assert "secret" not in outcome.err
    assert dump_store(folder) == before


def test_no_command_is_no_mistake_but_help(foretell: Callable[..., Any], tmp_path: Path) -> None:
    assert "Usage" in foretell(folder=tmp_path).out


@pytest.mark.parametrize("words", ["check", "generate", "build", "predict --set n=1", "runs list", "report"])
def test_no_app_file(words: str, foretell: Callable[..., Any], tmp_path: Path) -> None:
    assert_refused(foretell(*words.split(), folder=tmp_path), "foretell.yaml", "foretell init")


@pytest.mark.parametrize("command", ["'open", "", "   "])
def test_init_with_no_command(command: str, foretell: Callable[..., Any], tmp_path: Path) -> None:
    assert_refused(foretell("init", "--command", command, folder=tmp_path), "--command")
    assert not (tmp_path / "foretell.yaml").exists()


def test_every_mistake_of_an_app_file_at_once(foretell: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "foretell.yaml").write_text(
        "name: a b\ncommand: run {x}\nrepetitions: 0\ntime_limit: soon\ncolour: red\n"
    )
    for words in (["check"], ["generate", "--dry-run"]):
        outcome = foretell(*words, folder=tmp_path)
        assert_refused(outcome, "line 1", "line 3", "line 4", "line 5")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", ["past.csv", "expected CSV"]),
        ("n,seconds\n", ["no usable row", "empty"]),
        ("n,n,seconds\n1,2,3\n", []),
        ("n,seconds\n1,-5\n2,0\n3,nan\n4,inf\n5,1e400\n6,soon\n", ["seconds", "positive", "rows 1, 2, 3"]),
        ("n,seconds\n1,2\n3,4,5,6\n", ["past.csv", "line 3"]),
        ('n,seconds\n"1,2\n', ["past.csv"]),
        ("\0\0\0", ["no column 'seconds'"]),
    ],
)
def test_tables_that_are_none(table: str, expected: Any, foretell: Callable[..., Any], folder: Path) -> None:
    (folder / "past.csv").write_text(table)
    outcome = foretell("runs", "import", "past.csv", "--app", "new", "--elapsed", "seconds", folder=folder)
    if expected:
        assert_refused(outcome, *expected)
        assert_refused(foretell("runs", "list", "new", folder=folder), "'new'")
    assert_answered(outcome)
    assert foretell("runs", "list", "past", "--json", folder=folder).record["total"] == 12


def test_rows_that_cannot_be_used_are_named(foretell: Callable[..., Any], folder: Path) -> None:
    (folder / "past.csv").write_text("n,seconds\n1,5\n2,-5\n1e999,7\n4,\n")
    record = foretell(*IMPORT, "--json", folder=folder).record
    assert (record["read"], record["added"]) == (4, 1)
    assert sorted(row for rows in record["skipped"].values() for row in rows) == [2, 3, 4]


@pytest.mark.parametrize("name", ["a\nb", "a b", "", "a\0b", "x" * 5000, "..", "ünï", "'; DROP TABLE runs; --"])
def test_odd_app_names(name: Any, foretell: Callable[..., Any], folder: Path) -> None:
    outcome = foretell("runs", "import", "past.csv", "--app", name, "--elapsed", "seconds", folder=folder)
    assert_answered(outcome)
    assert_answered(foretell("runs", "list", name, folder=folder))
    assert foretell("runs", "list", "past", "--json", folder=folder).record["total"] == 12


@pytest.mark.parametrize("option", ["--store", "--output", "--from", "--site-file"])
@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "\udcff\udcfe", "\n"])
def test_odd_paths(option: str, path: Any, foretell: Callable[..., Any], folder: Path) -> None:
    commands = {"--store": "runs list past", "--output": "runs export past", "--from": "predict past"}
    words = commands.get(option, "sites list").split()
    assert_answered(foretell(*words, option, path, folder=folder))


WORDS = st.text(st.characters(exclude_categories=[]), max_size=30)
YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def render_csv(rows: Iterable[Iterable[str]]) -> bytes:
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass")


KEYS = ["name", "command", "shell", "parameters", "resources", "environment", "working_directory", "setup", "cleanup"]
KEYS += ["repetitions", "time_limit", "phases", "estimate", "other"]


@pytest.fixture(scope="module")
def scratch(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(stored, tmp_path_factory.mktemp("scratch") / "folder")


@SOON
@given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(KEYS), YAML_VALUES).map(lambda d: repr(d).encode()))
def test_any_app_file_is_taken_or_refused(
    foretell: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, content: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-app"
    folder.mkdir(exist_ok=True)
    (folder / "foretell.yaml").write_bytes(content)
    assert_answered(foretell("check", folder=folder))
    assert_answered(foretell("check", "--json", folder=folder))


@SOON
@given(st.binary(max_size=300) | st.lists(st.lists(WORDS), max_size=6).map(render_csv))
def test_any_table_is_taken_or_refused(foretell: Callable[..., Any], scratch: Path, content: Any) -> None:
    (scratch / "any.csv").write_bytes(content)
    words = ["runs", "import", "any.csv", "--app", "any", "--elapsed", "seconds"]
    assert_answered(foretell(*words, folder=scratch))
    (scratch / "any.csv").write_bytes(b"seconds,n,word\n1,2,x\n" + content)
    assert_answered(foretell(*words, folder=scratch))
    assert foretell("runs", "list", "past", "--json", folder=scratch).record["total"] == 12


@SOON
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: f'[site]\nname = "{text}"\n'.encode()))
def test_any_site_file_is_taken_or_refused(foretell: Callable[..., Any], scratch: Path, content: Any) -> None:
    (scratch / "any.toml").write_bytes(content)
    assert_answered(foretell("sites", "list", "--site-file", "any.toml", folder=scratch))


@SOON
@given(st.sampled_from(["--level", "--risk", "--cores", "--store", "--set", "--from"]), WORDS)
def test_any_option_is_taken_or_refused(foretell: Callable[..., Any], scratch: Path, option: Any, word: Any) -> None:
    assert_answered(foretell("predict", "past", f"{option}={word}", folder=scratch))


@SOON
@given(st.dictionaries(st.sampled_from(["n", "word", "other"]), WORDS, min_size=1))
def test_any_parameter_value_is_taken_or_refused(built_past: Path, foretell: Callable[..., Any], values: Any) -> None:
    words = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    assert_answered(foretell("predict", "past", *words, "--json", folder=built_past))
    assert_answered(foretell("recommend", "past", *words, folder=built_past))


@pytest.fixture(scope="module")
def built_past(stored: Path, tmp_path_factory: pytest.TempPathFactory, foretell: Callable[..., Any]) -> Path:
    folder = shutil.copytree(stored, tmp_path_factory.mktemp("built") / "folder")
    assert foretell("build", "past", folder=folder).code == 0
    return folder


@pytest.mark.parametrize("value", ["nan", "inf", "-1e308", "1e308", "1" * 400, "", "x", "0x10", "١٢"])
def test_odd_numbers(value: Any, built_past: Path, foretell: Callable[..., Any]) -> None:
    for command in ("predict", "recommend", "report"):
        assert_answered(foretell(command, "past", "--set", f"n={value}", "--set", "word=a", folder=built_past))


def test_mistakes_of_a_configuration_at_once(built_past: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell("predict", "past", "--set", "n=much", "--set", "wrd=a", folder=built_past)
    assert_refused(outcome, "n", "'much'", "wrd", "word")


def test_a_damaged_model_is_no_traceback(built_past: Path, tmp_path: Path, foretell: Callable[..., Any]) -> None:
    folder = shutil.copytree(built_past, tmp_path / "folder")
    with closing(sqlite3.connect(folder / ".foretell" / "store.db")) as connection, connection:
        connection.execute("UPDATE models SET blob = X'00'")
    outcome = foretell("predict", "past", "--set", "n=1", "--set", "word=a", folder=folder)
    assert_refused(outcome, "stored model", "foretell build")


def test_output_that_cannot_be_written(built_past: Path, foretell: Callable[..., Any]) -> None:
    for words in (
        "recommend past --set n=3 --set word=a --output past.csv/below/job.sh",
        "recommend past --set n=3 --set word=a --output .",
        "report past --output /proc/nowhere/page.html",
        "runs export past --output past.csv/below/runs.csv",
        "build past --plots past.csv/below",
    ):
        assert_refused(foretell(*words.split(), folder=built_past), code=(1,))


def test_a_run_directory_that_cannot_be_made(foretell: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "foretell.yaml").write_text("name: a\ncommand: ['true']\n")
    (tmp_path / ".foretell").mkdir()
    (tmp_path / ".foretell" / "runs").write_text("in the way")
    assert_refused(foretell("generate", folder=tmp_path), ".foretell/runs", "file that is in its place")
    assert foretell("runs", "list", "--json", folder=tmp_path).record["total"] == 0


def test_a_run_that_can_never_fit(foretell: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "foretell.yaml").write_text("name: a\ncommand: ['true']\nresources: {cores: [1, 100000]}\n")
    outcome = foretell("generate", folder=tmp_path)
    assert_refused(outcome, "100000 cores")


def test_a_program_that_is_not_there(foretell: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "foretell.yaml").write_text("name: a\ncommand: [no-such-program]\n")
    outcome = foretell("generate", folder=tmp_path)
    assert outcome.code == 1
    assert "no-such-program" in outcome.out + outcome.err
    assert foretell("runs", "list", "--json", folder=tmp_path).record["runs"][0]["state"] == "failed"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["predict", "nobody", "--set", "n=1"], 1),
        (["runs", "import", "nowhere.csv", "--app", "x", "--elapsed", "s"], 1),
        (["runs", "list", "past", "--limit", "0"], 2),
    ],
)
def test_as_a_process(words: list[str], code: int, folder: Path) -> None:
    done = run_process(*words, folder=folder)
    assert done.returncode == code
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run_process("runs", "export", "past", folder=folder, stdout=writer)
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def run_process(*words: str, folder: Path, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from foretell.cli.main import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


def test_duplicate_columns_in_a_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["n", "n", "seconds"])
    with pytest.raises(ImportDataError, match="named twice: 'n'"):
        package.import_runs(frame, app="x", columns=package.Columns(elapsed="seconds"), store=tmp_path / "s.db")
