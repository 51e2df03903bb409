"""The pages name everything there is, and point at nothing that is not."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import foretell
from foretell.cli.main import app
from foretell.core.warning import WARNING_CODES

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *sorted((_ROOT / "docs").glob("*.md"))]
_LINK = re.compile(r"\]\((?!\w+://)([^)#\s]*)#?([^)\s]*)\)")


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from _walk(command.get_command(context, name), f"{path} {name}")


_COMMANDS = dict(_walk(app, "foretell"))


@pytest.fixture(scope="module")
def chapters() -> dict[str, str]:
    """Each command's chapter."""
    text = (_ROOT / "docs/commands.md").read_text("utf-8")
    parts = re.split(r"^## `(foretell[ a-z]*)[^`]*`$", text, flags=re.M)[1:]
    return {name.strip(): chapter for name, chapter in zip(parts[::2], parts[1::2], strict=True)}


def test_every_command_has_a_chapter(chapters: dict[str, str]) -> None:
    assert set(chapters) == set(_COMMANDS)


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_is_in_its_commands_chapter(chapters: dict[str, str], name: str) -> None:
    options = {word for one in _COMMANDS[name].params for word in (*one.opts, *one.secondary_opts) if word[:2] == "--"}
    described = re.findall(r"^\| (`--.*?) \|", chapters[name], re.M)
    assert set(re.findall(r"--[\w-]+", " ".join(described))) == options


def test_every_public_name_is_described() -> None:
    described = re.findall(r"^\| `(\w+)[(`]", (_ROOT / "docs/python.md").read_text("utf-8"), re.M)
    assert sorted(set(described) - set(WARNING_CODES)) == sorted(foretell.__all__)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text("utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{target} does not exist"
        assert not anchor or anchor in _anchors(path), f"{target or page.name} has no chapter {anchor!r}"


def _anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


def test_the_readme_leads_to_every_page() -> None:
    linked = {target for target, _ in _LINK.findall((_ROOT / "README.md").read_text("utf-8"))}
    assert {f"docs/{page.name}" for page in (_ROOT / "docs").glob("*.md")} <= linked


def test_files_of_the_architecture_page_exist() -> None:
    text = (_ROOT / "docs/architecture.md").read_text("utf-8")
    named = [path for path in re.findall(r"`([a-z_]+/[\w./]*)`", text) if "NAME" not in path]
    missing = [path for path in named if not (_ROOT / "src/foretell" / path).exists() and not (_ROOT / path).exists()]
    assert len(named) > 20
    assert not missing
