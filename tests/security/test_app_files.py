"""Which foretell.yaml is used if none is named."""

import os
from pathlib import Path

import pytest
from tests.security.conftest import User, Users

from foretell.cli._places import find_app_file
from foretell.core.errors import SpecError

pytestmark = pytest.mark.slow


@pytest.fixture
def work(victim: User) -> Path:
    """A folder of the victim's, with an app file and a folder below it."""
    victim.write(victim.home / "work/foretell.yaml", "name: demo\ncommand: ['true']\n")
    return victim.write(victim.home / "work/results/today/notes.txt", "").parent


def _plant(mallory: User, folder: Path, canary: Path) -> Path:
    """An app file that leaves a trace when it is run."""
    canary.parent.chmod(0o777)
    planted = folder / "foretell.yaml"
    planted.write_text(f"name: demo\ncommand: [touch, {canary}]\n")
    os.chown(planted, mallory.user_id, mallory.group_id)
    return planted


@pytest.mark.parametrize("words", [["check"], ["generate", "--dry-run"], ["status"]], ids=" ".join)
def test_a_file_above_is_used_only_if_nobody_else_can_change_it(victim: User, work: Path, words: list[str]) -> None:
    """A user who can write the folder can replace the file between the check and the reading."""
    folder = work.parents[1]
    done = victim.foretell(*words, folder=work)
    assert done.returncode == 0, done.stderr
    folder.chmod(0o775)
    done = victim.foretell(*words, folder=work)
    message = f"others can change, because they can write {folder}, in a folder you did not name"
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert f"its name, to use it all the same: {folder / 'foretell.yaml'}" in done.stderr


@pytest.mark.parametrize(
    ("folder", "file"),
    [(0o775, 0o644), (0o757, 0o644), (0o1777, 0o644), (0o1775, 0o644), (0o2770, 0o644), (0o755, 0o664), (0o755, 0o646)],
)
def test_no_mode_lets_others_change_it(tmp_path: Path, folder: int, file: int) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "foretell.yaml").write_text("")
    (tmp_path / "foretell.yaml").chmod(0o644)
    tmp_path.chmod(0o755)
    assert find_app_file(tmp_path / "below") == tmp_path / "foretell.yaml"
    (tmp_path / "foretell.yaml").chmod(file)
    tmp_path.chmod(folder)
    with pytest.raises(SpecError, match="one that others can change"):
        find_app_file(tmp_path / "below")


@pytest.mark.parametrize("target_of", ["victim", "mallory"])
@pytest.mark.parametrize("link_of", ["victim", "mallory"])
def test_a_symbolic_link_above_is_refused(users: Users, work: Path, link_of: str, target_of: str) -> None:
    """Checking the target of a link is useless: it may change before the file is read."""
    owners = {"victim": users.victim, "mallory": users.mallory}
    target = owners[target_of].write(owners[target_of].home / "app.yaml", "name: demo\ncommand: ['true']\n")
    link = work.parents[1] / "foretell.yaml"
    link.unlink()
    link.symlink_to(target)
    os.lchown(link, owners[link_of].user_id, owners[link_of].group_id)
    done = users.victim.foretell("check", folder=work)
    assert (done.returncode, "in a folder you did not name" in done.stderr) == (1, True), done.stderr


def test_the_file_of_another_user_above_is_not_run(users: Users, work: Path) -> None:
    canary = users.victim.home.parent / "canary"
    (work.parents[1] / "foretell.yaml").unlink()
    planted = _plant(users.mallory, users.victim.home.parent, canary)
    planted.parent.chmod(0o1777)
    done = users.victim.foretell("generate", folder=work)
    assert (done.returncode, f"belongs to {users.mallory.name}" in done.stderr) == (1, True), done.stderr
    assert not canary.exists()


def test_ones_own_file_in_a_folder_of_another_user_is_not_run(users: Users) -> None:
    """The folder's owner may have linked it there, and can replace it."""
    folder = users.mallory.home / "trap"
    users.victim.write(users.victim.home / "foretell.yaml", "name: demo\ncommand: ['true']\n")
    users.mallory.write(folder / "below/notes.txt", "")
    os.link(users.victim.home / "foretell.yaml", folder / "foretell.yaml")
    done = users.victim.foretell("check", folder=folder / "below")
    message = f"one in a folder that belongs to {users.mallory.name}"
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_a_named_file_is_used_whatever_is_above(users: Users, work: Path) -> None:
    """Users can always name another file."""
    own = users.victim.write(work / "mine.yaml", "name: mine\ncommand: ['true']\n")
    work.parents[1].chmod(0o777)
    _plant(users.mallory, work.parents[1], users.victim.home.parent / "canary")
    for words in (["generate", "--dry-run"], ["status"]):
        done = users.victim.foretell(*words, own, folder=work)
        assert done.returncode == 0, done.stderr


class TestHere:
    """The current folder was chosen by the user."""

    def test_a_group_may_share_it(self, tmp_path: Path) -> None:
        (tmp_path / "foretell.yaml").write_text("")
        (tmp_path / "foretell.yaml").chmod(0o664)
        tmp_path.chmod(0o775)
        assert find_app_file(tmp_path) == tmp_path / "foretell.yaml"

    def test_it_may_not_be_writable_by_all(self, tmp_path: Path) -> None:
        (tmp_path / "foretell.yaml").write_text("")
        (tmp_path / "foretell.yaml").chmod(0o666)
        with pytest.raises(SpecError, match="one that anybody can write"):
            find_app_file(tmp_path)

    def test_the_file_of_another_user_in_a_folder_open_to_all_is_refused(self, users: Users) -> None:
        folder = users.victim.home.parent / "open"
        folder.mkdir()
        folder.chmod(0o1777)
        canary = users.victim.home.parent / "canary"
        _plant(users.mallory, folder, canary)
        done = users.victim.foretell("generate", folder=folder)
        assert (done.returncode, canary.exists()) == (1, False), done.stderr
