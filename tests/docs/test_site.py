"""The documentation site: built strictly, and complete without another host."""

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

_ROOT = Path(__file__).parents[2]
_LOADED = re.compile(r"""<(?:script|img|iframe)[^>]*\bsrc=["']?(https?:)?//|<link[^>]*\bhref=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(_ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {page.stem for page in (_ROOT / "docs").glob("*.md")} | {"index", "changelog", "contributing", "reporting"}
    assert pages <= {page.stem for page in site.glob("*.html")}


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    assert [page.name for page in site.glob("*.html") if _LOADED.search(page.read_text("utf-8"))] == []


def test_links_of_the_readme_lead_to_pages_of_the_site(site: Path) -> None:
    front = (site / "index.html").read_text("utf-8")
    assert 'href="getting-started.html"' in front
    assert 'href="docs/' not in front


def test_the_search_finds_commands(site: Path) -> None:
    assert "foretell recommend" in (site / "search" / "search_index.json").read_text("utf-8")
