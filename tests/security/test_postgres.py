"""The roles of docs/security.md: what its GRANT lines allow, and what not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import foretell
from foretell.core.app import App
from foretell.core.errors import StoreError

_PAGE = Path(__file__).parents[2] / "docs/security.md"
_ROLES = ("ada", "bob", "eve", "lab", "lab_readers")


@pytest.fixture
def server(postgres_server: str) -> Iterator[str]:
    """With a database and users, as an administrator makes them."""
    import psycopg

    with psycopg.connect(host=postgres_server, user="test", dbname="postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE ada LOGIN CREATEROLE")
        connection.execute("CREATE ROLE bob LOGIN")
        connection.execute("CREATE ROLE eve LOGIN")
        connection.execute("GRANT bob, eve TO ada WITH ADMIN OPTION")
        connection.execute("CREATE DATABASE foretell OWNER ada")
        yield postgres_server
        connection.execute("DROP DATABASE foretell WITH (FORCE)")
        for role in _ROLES:
            connection.execute(f"DROP ROLE IF EXISTS {role}")


@pytest.mark.postgres
def test_members_write_and_readers_read(server: str) -> None:
    import psycopg

    def address(user: str) -> str:
        return f"postgresql://{user}@/foretell?host={server}"

    foretell.open_store(address("ada")).close()
    (grants,) = re.findall(r"^```sql\n(.*?)^```$", _PAGE.read_text(), re.M | re.S)
    with psycopg.connect(host=server, user="ada", dbname="foretell", autocommit=True) as connection:
        connection.execute(grants)
    with foretell.open_store(address("bob")) as store:
        store.save_app(App(name="demo"))
        assert not store.private
    with foretell.open_store(address("eve")) as store:
        assert store.app_names() == ["demo"]
        with pytest.raises(StoreError, match="you may not do this there"):
            store.save_app(App(name="other"))
