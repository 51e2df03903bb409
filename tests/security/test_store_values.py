"""A SQLite file is a schema and values of any type: neither makes Foretell hang, crash or print what is secret."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Outcome

from foretell.core.errors import StoreError
from foretell.stores import RunReader, open_reader, open_store

pytestmark = pytest.mark.slow

_ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS name, x AS description FROM c"
_ESCAPE = "char(27) || ']0;owned' || char(7)"


@pytest.fixture
def store(tmp_path: Path, foretell: Callable[..., Outcome]) -> Path:
    """Runs and a model of the app ``demo``, and two past jobs."""
    rows = "".join(f"{n},{n * 2 + n % 3}\n" for n in range(1, 13))
    (tmp_path / "runs.csv").write_text("n,s\n" + rows)
    jobs = "".join(f"{n}|COMPLETED|{60 * n}|2025-03-01T10:00:00|ada|train|cpu=4,mem=8G,node=1\n" for n in (1, 2))
    (tmp_path / "jobs.txt").write_text("JobID|State|ElapsedRaw|Submit|User|JobName|AllocTRES\n" + jobs)
    for words in (
        ("runs", "import", "runs.csv", "--app", "demo", "--elapsed", "s"),
        ("build", "demo"),
        ("history", "import", "jobs.txt"),
    ):
        done = foretell(*words, "--store", "store.db", folder=tmp_path)
        assert done.code == 0, done.err
    return tmp_path / "store.db"


def _execute(store: Path, *statements: str) -> None:
    connection = sqlite3.connect(store)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("reopen", [open_store, open_reader])
@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE apps RENAME TO old", f"CREATE VIEW apps AS {_ENDLESS}"),
        ("ALTER TABLE models RENAME TO old", "CREATE VIEW models AS SELECT app, zeroblob(900000000) AS blob FROM old"),
        ("DROP TABLE foretell_version", "CREATE VIEW foretell_version AS SELECT '0005' AS version_num"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",),
        ("ALTER TABLE apps ADD COLUMN big GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL",),
        ("CREATE VIRTUAL TABLE texts USING fts5(text)",),
    ],
    ids=["endless view", "huge view", "version as a view", "trigger", "computed column", "virtual table"],
)
def test_a_schema_that_computes_is_refused(
    store: Path, statements: tuple[str, ...], reopen: Callable[[Path], RunReader]
) -> None:
    _execute(store, *statements)
    with pytest.raises(StoreError, match="views, triggers or computed columns"):
        reopen(store)


@pytest.mark.parametrize("reopen", [open_store, open_reader])
def test_one_value_cannot_take_all_memory(store: Path, reopen: Callable[[Path], RunReader]) -> None:
    _execute(store, "UPDATE models SET blob = zeroblob(400000000)")
    with reopen(store) as opened, pytest.raises(StoreError):
        opened.find_model("demo")


_VALUES = {
    "a version with an escape": (f"UPDATE foretell_version SET version_num = {_ESCAPE}", "runs list demo"),
    "a version that is a blob": ("UPDATE foretell_version SET version_num = x'00ff'", "runs list demo"),
    "an empty version": ("UPDATE foretell_version SET version_num = ''", "runs list demo"),
    "a version before all": ("UPDATE foretell_version SET version_num = '0000'", "runs list demo"),
    "an app's name that is a blob": ("UPDATE apps SET name = x'00ff'", "predict nonesuch --set n=3"),
    "facts of a model that are a number": ("UPDATE models SET extra = '5'", "predict demo --set n=3"),
    "facts of a model that are a list": ("UPDATE models SET extra = '[]'", "predict demo --set n=3"),
    "facts of a model that are null": ("UPDATE models SET extra = 'null'", "predict demo --set n=3"),
    "a model made at no moment": ("UPDATE models SET created_at = 5", "predict demo --set n=3"),
    "a run begun at no moment": ("UPDATE runs SET started_at = 5", "runs export demo --output out.csv"),
    "an application used last at no moment": ("UPDATE jobs SET submitted_at = 1e308", "history apps"),
    "an application used last at a text": ("UPDATE jobs SET submitted_at = 'soon'", "history apps"),
    "a job that took a text": ("UPDATE jobs SET elapsed_s = 'long'", "history report"),
    "a job on a text of nodes": ("UPDATE jobs SET nodes = 'many'", "history report"),
    "a job with a blob of memory": ("UPDATE jobs SET peak_memory_bytes = x'00ff'", "history report"),
    "a user that is a number": ("UPDATE job_kinds SET user = x'00ff'", "history report"),
}


@pytest.mark.parametrize(("statement", "words"), _VALUES.values(), ids=_VALUES)
def test_a_value_that_cannot_be_is_an_error_in_one_sentence(
    store: Path, foretell: Callable[..., Outcome], statement: str, words: str
) -> None:
    _execute(store, statement)
    done = foretell(*words.split(), "--store", "store.db", folder=store.parent)
    _check_sentence(done)


def _check_sentence(done: Outcome) -> None:
    assert (done.code, "Traceback" in done.err) == (1, False), done.err
    assert "\x1b]" not in done.err
    assert "store" in done.err


def test_invalid_counts_of_a_model_count_as_zero(store: Path, foretell: Callable[..., Outcome]) -> None:
    """The model is older than every run then, which is a warning."""
    _execute(
        store, """UPDATE models SET extra = json_set(extra, '$.runs', 'many', '$.jobs', '9999999999999999999999')"""
    )
    done = foretell("predict", "demo", "--set", "n=3", "--store", "store.db", folder=store.parent)
    assert (done.code, "was built before 12 runs" in " ".join(done.out.split())) == (0, True)


def test_a_lone_surrogate_is_escaped_in_an_export(store: Path, foretell: Callable[..., Outcome]) -> None:
    _execute(store, """UPDATE runs SET machine = '{"hostname": "a\\ud800b"}'""")
    done = foretell("runs", "export", "demo", "--output", "out.csv", "--store", "store.db", folder=store.parent)
    assert done.code == 0, done.err
    assert "a\\ud800b" in (store.parent / "out.csv").read_text()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql//ada:hush@127.0.0.1/x",
        "//ada:hush@127.0.0.1/x",
        "host=127.0.0.1 user=ada password=hush",
        "host=127.0.0.1 user=ada PASSWORD='hush hush'",
        "ada:hush@127.0.0.1/x",
        "ada:hush",
        "postgresql://ada:hush/127.0.0.1/x",
        "postgresql://ada:hush127.0.0.1/x",
        "postgresql://ada@127.0.0.1:1/x?PASSWORD=hush",
        "postgresql://ada@127.0.0.1:1/x?pass=hush",
        "postgresql://ada@127.0.0.1:1/x?options=-cpassword=hush",
        "mysql://ada:hush@127.0.0.1/x",
        "postgresql://ada:hush@127.0.0.1:port/x",
    ],
)
def test_no_message_repeats_a_password(tmp_path: Path, foretell: Callable[..., Outcome], address: str) -> None:
    done = foretell("runs", "list", "demo", "--store", address, folder=tmp_path)
    assert (done.code, "hush" in done.err + done.out) == (1, False), done.err
