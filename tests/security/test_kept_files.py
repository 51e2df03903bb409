"""Files next to the runs are in folders of the user, whoever shares the store or the app's folder."""

import os
import stat
import sys
from pathlib import Path

import pytest
from tests.security.conftest import User, Users

pytestmark = pytest.mark.slow

_APP = "name: demo\ncommand: [echo, '{n}']\nparameters: {n: {type: integer, values: [1]}}\n"
_TABLE = "n,s\n" + "".join(f"{n},{n * 2.0}\n" for n in range(1, 9))
_PRECIOUS = "years of work\n"
_UMASK = 'umask 002; exec "$@"'


@pytest.fixture
def precious(victim: User) -> Path:
    return victim.write(victim.home / "thesis.tex", _PRECIOUS)


@pytest.fixture
def place(users: Users) -> Path:
    """A folder of the victim's with an app, which the group may write."""
    folder = users.victim.write(users.victim.home / "work/foretell.yaml", _APP).parent
    users.victim.write(folder / "runs.csv", _TABLE)
    os.chown(folder, users.victim.user_id, users.group_id)
    folder.chmod(0o2775)
    return folder


def _link(mallory: User, link: Path, target: Path) -> None:
    done = mallory.run("sh", "-c", f"umask 0; mkdir -p {link.parent} && ln -s {target} {link}")
    assert done.returncode == 0, done.stderr


def _list_foreign(folder: Path, user: User) -> list[Path]:
    """What a user has in a folder."""
    return [path for path in folder.rglob("*") if path.lstat().st_uid == user.user_id]


class TestSharedStores:
    """Nothing but the store itself is written where a group keeps its store."""

    def test_a_learned_device(self, users: Users, shared: Path, precious: Path) -> None:
        pytest.importorskip("torch")
        _link(users.mallory, shared.parent / "devices/cpu.jsonl", precious)
        users.victim.foretell("device", "learn", "--name", "cpu", "--budget", "1s", "--store", shared)
        assert precious.read_text() == _PRECIOUS
        assert (users.victim.home / ".foretell/devices/cpu.jsonl").is_file()

    def test_an_observation(self, users: Users, shared: Path, precious: Path) -> None:
        folder = shared.parent / "observations"
        _link(users.mallory, folder / "x.json", precious)
        done = users.victim.foretell("observe", "--store", shared, "--", "true")
        assert done.returncode == 0, done
        assert not _list_foreign(folder, users.victim)
        assert len(list((users.victim.home / ".foretell/observations").glob("*.json"))) == 1

    def test_a_profile(self, users: Users, shared: Path, precious: Path) -> None:
        pytest.importorskip("torch")
        folder = shared.parent / "profiles"
        _link(users.mallory, folder / "x.json", precious)
        words = ["--set", "in_features=4", "--set", "out_features=2", "--input", "8,4", "--seconds", "0.01"]
        done = users.victim.foretell("workload", "profile", "torch.nn:Linear", *words, "--store", shared)
        assert done.returncode == 0, done
        assert not _list_foreign(folder, users.victim)
        assert len(list((users.victim.home / ".foretell/profiles").glob("*.json"))) == 1

    def test_an_unused_option_is_reported(self, users: Users, shared: Path) -> None:
        pytest.importorskip("torch")
        done = users.victim.foretell("device", "list", "--store", shared)
        assert (done.returncode, "--store is not used here" in " ".join(done.stderr.split())) == (0, True), done


class TestSharedAppFolders:
    """Another user may have created ``.foretell``, or files in it."""

    def _build(self, victim: User, place: Path, store: Path) -> tuple[int, str]:
        words = ("runs", "import", "runs.csv", "--app", "demo", "--elapsed", "s", "--store", store)
        assert victim.foretell(*words, folder=place).returncode == 0
        done = victim.foretell("build", "--store", store, folder=place)
        return done.returncode, " ".join(done.stderr.split())

    def test_a_foreign_folder_is_refused(self, users: Users, place: Path, precious: Path) -> None:
        for suffix in ("png", "svg"):
            _link(users.mallory, place / f".foretell/plots/demo-elapsed_s.{suffix}", precious)
        code, said = self._build(users.victim, place, users.victim.home / "own.db")
        assert (code, f"belongs to {users.mallory.name}" in said) == (1, True), said
        assert precious.read_text() == _PRECIOUS
        assert not _list_foreign(place / ".foretell", users.victim)

    def test_a_link_in_an_older_folder_is_replaced(self, users: Users, place: Path, precious: Path) -> None:
        """Versions before made it with whatever the umask left."""
        plots = users.victim.write(place / ".foretell/plots/x", "").parent
        for folder in (plots.parent, plots):
            os.chown(folder, users.victim.user_id, users.group_id)
            folder.chmod(0o2775)
        for suffix in ("png", "svg"):
            _link(users.mallory, plots / f"demo-elapsed_s.{suffix}", precious)
        code, said = self._build(users.victim, place, users.victim.home / "own.db")
        assert code == 0, said
        assert precious.read_text() == _PRECIOUS
        assert (plots / "demo-elapsed_s.png").read_bytes().startswith(b"\x89PNG")
        assert not plots.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def test_a_foreign_link_to_a_folder_of_ones_own_is_refused(self, users: Users, place: Path) -> None:
        plot = users.victim.write(users.victim.home / "paper/plots/demo-elapsed_s.png", _PRECIOUS)
        _link(users.mallory, place / ".foretell", plot.parent.parent)
        code, said = self._build(users.victim, place, users.victim.home / "own.db")
        assert (code, f"link of {users.mallory.name}" in said) == (1, True), said
        assert plot.read_text() == _PRECIOUS
        done = users.victim.foretell("generate", "--store", users.victim.home / "own.db", folder=place)
        assert (done.returncode, f"link of {users.mallory.name}" in " ".join(done.stderr.split())) == (1, True), done

    def test_a_foreign_link_to_devices_is_refused(self, users: Users, place: Path) -> None:
        pytest.importorskip("torch")
        users.victim.write(place / ".foretell/store.db", "").unlink()
        os.chown(place / ".foretell", users.victim.user_id, users.group_id)
        (place / ".foretell").chmod(0o2775)
        file = users.victim.write(users.victim.home / "own/cpu.jsonl", _PRECIOUS)
        _link(users.mallory, place / ".foretell/devices", file.parent)
        done = users.victim.foretell("device", "learn", "--name", "cpu", "--budget", "1s", folder=place)
        assert (done.returncode, "symbolic link" in done.stderr) == (1, True), done
        assert file.read_text() == _PRECIOUS


def test_all_folders_are_closed_to_others(victim: User) -> None:
    folder = victim.write(victim.home / "work/foretell.yaml", _APP).parent
    victim.write(folder / "runs.csv", _TABLE)
    python = ["sh", "-c", _UMASK, "sh", sys.executable, "-m", "foretell"]
    commands: list[list[str | Path]] = [
        ["observe", "--store", victim.home / "own.db", "--", "true"],
        ["runs", "import", "runs.csv", "--app", "demo", "--elapsed", "s", "--store", victim.home / "own.db"],
        ["build", "--store", victim.home / "own.db"],
        ["generate", "--wait-quiet", "no", "--store", victim.home / "own.db"],
    ]
    for words in commands:
        done = victim.run(*python, *words, folder=folder)
        assert done.returncode == 0, done
    made = [path for path in (folder / ".foretell", *(folder / ".foretell").rglob("*")) if path.is_dir()]
    assert {path.name for path in made} >= {".foretell", "observations", "plots", "runs"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


def test_files_made_by_sudo_belong_to_the_user(victim: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 'sudo foretell consumption learn' does: the user wants to read it afterwards."""
    from foretell.core.errors import OutputError
    from foretell.core.private_files import make_kept_folder

    work = victim.write(victim.home / "work/.foretell/x", "").parent
    with pytest.raises(OutputError, match="belongs to"):
        make_kept_folder(work, "consumption")
    assert not (work / "consumption").exists()
    monkeypatch.setenv("SUDO_UID", str(victim.user_id))
    made = make_kept_folder(work, "consumption").stat()
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (victim.user_id, victim.group_id, 0o700)
