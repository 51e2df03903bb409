import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine
from tests.contracts.stores import build_run

from foretell.core.errors import StoreError
from foretell.stores import open_store
from foretell.stores._engine import build_engine, parse_address
from foretell.stores._schema import HEAD, VERSION_TABLE
from foretell.stores._tables import metadata


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    open_store(address).close()
    engine = build_engine(parse_address(address))
    yield engine
    engine.dispose()


def test_migrations_lead_to_the_tables_in_use(engine: Engine) -> None:
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


def test_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "foretell.stores:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_store_of_a_newer_foretell_is_refused_and_left_alone(engine: Engine, address: str) -> None:
    with engine.execution_options(write=True).begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"a newer Foretell wrote it .*9999.*pip install --upgrade foretell"):
        open_store(address)
    with engine.connect() as connection:
        assert connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")) == "9999"


def test_tables_of_another_program_are_left_alone(address: str) -> None:
    engine = build_engine(parse_address(address))
    with engine.execution_options(write=True).begin() as connection:
        connection.execute(sa.text("CREATE TABLE runs (name TEXT)"))
    with pytest.raises(StoreError, match="tables of another program"):
        open_store(address)
    with engine.connect() as connection:
        assert sa.inspect(connection).get_table_names() == ["runs"]
    engine.dispose()


def test_no_everyday_question_reads_the_whole_table(engine: Engine, address: str) -> None:
    with open_store(address) as store:
        store.add_runs(build_run(number, app=f"app{number % 300}") for number in range(3000))
    questions = [
        "SELECT * FROM runs WHERE app = 'app7' ORDER BY number DESC LIMIT 20",
        "SELECT * FROM runs WHERE app = 'app7' AND state = 'running' ORDER BY number",
        "SELECT state, count(*) FROM runs WHERE app = 'app7' GROUP BY state",
        "SELECT * FROM runs WHERE id >= 'abc' AND id < 'abc~'",
        "UPDATE runs SET heartbeat_at = NULL WHERE owner_token = 'us'",
    ]
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        connection.execute(sa.text("ANALYZE runs"))
        plans = [str(connection.execute(sa.text(f"{explain} {question}")).all()) for question in questions]
    assert [plan for plan in plans if "SCAN runs" in plan or "Seq Scan" in plan] == []


def test_opening_a_store_that_is_up_to_date_does_not_load_alembic(tmp_path: Path) -> None:
    address = str(tmp_path / "runs.db")
    open_store(address).close()
    code = (
        "import sys; from foretell.stores import open_store; open_store(sys.argv[1]); print('alembic' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_reading_a_store_that_is_up_to_date_does_not_load_sqlalchemy(tmp_path: Path) -> None:
    address = str(tmp_path / "runs.db")
    with open_store(address) as store:
        store.add_runs([build_run()])
    code = (
        "import sys; from foretell.stores import open_reader; "
        "print(len(open_reader(sys.argv[1]).runs('demo')), 'sqlalchemy' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["1", "False"]


def test_mentioning_a_store_does_not_load_sqlalchemy() -> None:
    code = "import sys, foretell.stores; print('sqlalchemy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
