"""Who can write a store, and how it is used."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.security.conftest import User, Users

from foretell.core.errors import StoreError
from foretell.stores import RunReader, open_reader, open_store

pytestmark = pytest.mark.slow


def test_a_new_store_is_for_its_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_store(tmp_path / ".foretell/store.db") as store:
            assert store.private
            # SQLite gives its journal the modes of the file.
            modes = [path.stat().st_mode & 0o777 for path in (tmp_path / ".foretell").iterdir()]
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    assert (tmp_path / ".foretell").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("reopen", [open_store, open_reader])
@pytest.mark.parametrize("mode", [0o602, 0o666, 0o662])
def test_a_store_that_anybody_can_write_is_refused(
    tmp_path: Path, mode: int, reopen: Callable[[Path], RunReader]
) -> None:
    open_store(tmp_path / "store.db").close()
    (tmp_path / "store.db").chmod(mode)
    with pytest.raises(StoreError, match=r"anybody .* can write .*chmod o-w .*store\.db"):
        reopen(tmp_path / "store.db")


@pytest.mark.parametrize("reopen", [open_store, open_reader])
@pytest.mark.parametrize(("mode", "remedy"), [(0o777, "chmod o-w .*open"), (0o1777, "a folder of your own")])
def test_a_folder_that_anybody_can_write_is_refused(
    tmp_path: Path, mode: int, remedy: str, reopen: Callable[[Path], RunReader]
) -> None:
    """The sticky bit keeps others from replacing the store, not from leaving a journal that SQLite copies into it."""
    folder = tmp_path / "open"
    folder.mkdir()
    open_store(folder / "store.db").close()
    folder.chmod(mode)
    with pytest.raises(StoreError, match=rf"anybody .* can write .*{remedy}"):
        reopen(folder / "store.db")


@pytest.mark.parametrize("reopen", [open_store, open_reader])
@pytest.mark.parametrize("mode", [0o1770, 0o1775])
def test_a_store_in_a_sticky_folder_of_a_group_is_not_private(
    tmp_path: Path, mode: int, reopen: Callable[[Path], RunReader]
) -> None:
    open_store(tmp_path / "lab/store.db").close()
    (tmp_path / "lab").chmod(mode)
    with reopen(tmp_path / "lab/store.db") as store:
        assert not store.private


class TestLinks:
    """A store by a symbolic link."""

    @pytest.mark.parametrize("reopen", [open_store, open_reader])
    def test_an_own_link_is_followed(self, tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
        open_store(tmp_path / "real.db").close()
        (tmp_path / "link.db").symlink_to("real.db")
        with reopen(tmp_path / "link.db") as store:
            assert store.private

    def test_a_dangling_link_makes_a_private_file(self, tmp_path: Path) -> None:
        (tmp_path / "link.db").symlink_to("real.db")
        open_store(tmp_path / "link.db").close()
        assert (tmp_path / "real.db").stat().st_mode & 0o777 == 0o600

    def test_a_link_of_another_user_is_refused(self, users: Users, shared: Path) -> None:
        private = users.victim.home / "new.txt"
        link = shared.parent / "link.db"
        assert users.mallory.run("ln", "-s", private, link).returncode == 0
        table = users.victim.write(users.victim.home / "runs.csv", "n,s\n1,2\n")
        words: list[str | Path] = ["runs", "import", table, "--app", "demo", "--elapsed", "s", "--store", link]
        done = users.victim.foretell(*words)
        assert (done.returncode, "a symbolic link that others can replace" in done.stderr) == (1, True)
        assert not private.exists()


@pytest.mark.parametrize("reopen", [open_store, open_reader])
def test_a_database_of_another_program_is_not_changed(tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="tables of another program"):
        reopen(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("reopen", [open_store, open_reader])
@pytest.mark.parametrize(
    ("file", "folder", "private"), [(0o644, 0o755, True), (0o660, 0o770, False), (0o644, 0o775, False)]
)
def test_an_older_store_keeps_its_modes(
    tmp_path: Path, file: int, folder: int, private: bool, reopen: Callable[[Path], RunReader]
) -> None:
    path = tmp_path / "old/store.db"
    open_store(path).close()
    path.chmod(file)
    path.parent.chmod(folder)
    with reopen(path) as store:
        assert store.private is private
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (file, folder)


def test_a_store_of_another_user_is_used_with_a_warning(users: Users) -> None:
    store = users.mallory.home / "store.db"
    assert users.mallory.foretell("store", "create", store).returncode == 0
    store.chmod(0o644)
    done = users.victim.foretell("runs", "list", "demo", "--store", store)
    assert f"belongs to {users.mallory.name}" in done.stderr


class TestGroup:
    """One store for a group."""

    def test_members_share_it_and_others_do_not(self, users: Users, shared: Path) -> None:
        assert (shared.stat().st_mode & 0o777, shared.stat().st_gid) == (0o660, users.group_id)
        table = users.mallory.write(users.mallory.home / "runs.csv", "n,s\n1,2\n2,4\n")
        words: list[str | Path] = ["runs", "import", table, "--app", "demo", "--elapsed", "s", "--store", shared]
        assert users.mallory.foretell(*words).returncode == 0
        read = users.victim.foretell("runs", "list", "demo", "--store", shared)
        assert (read.returncode, read.stderr) == (0, "")

    def test_a_folder_is_made_for_it(self, users: Users) -> None:
        store = users.victim.home / "lab/store.db"
        done = users.victim.foretell("store", "create", store, "--group", users.group)
        assert done.returncode == 0, done.stderr
        assert (store.parent.stat().st_mode & 0o7777, store.parent.stat().st_gid) == (0o2770, users.group_id)

    def test_a_folder_the_group_cannot_write_is_named(self, victim: User, users: Users) -> None:
        done = victim.foretell("store", "create", victim.home / "store.db", "--group", users.group)
        assert done.returncode == 1
        assert f"chgrp {users.group}" in done.stderr

    def test_a_store_that_is_there_stays(self, users: Users, shared: Path) -> None:
        done = users.victim.foretell("store", "create", shared, "--group", users.group)
        assert (done.returncode, "exists already" in done.stderr) == (1, True)

    def test_groups_of_others_are_refused(self, users: Users) -> None:
        done = users.victim.foretell("store", "create", users.victim.home / "a/store.db", "--group", "root")
        assert done.returncode == 1
        done = users.victim.foretell("store", "create", users.victim.home / "a/store.db", "--group", "no-such-group")
        assert "id -Gn" in done.stderr


def test_a_store_of_an_older_version_opens(tmp_path: Path) -> None:
    """A file as SQLite itself makes one, with whatever modes the umask left."""
    path = tmp_path / "old.db"
    sqlite3.connect(path).execute("VACUUM")
    path.chmod(0o664)
    with open_store(path) as store:
        assert store.app_names() == []
    assert path.stat().st_mode & 0o777 == 0o664
