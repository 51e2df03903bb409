"""Makes pages of the site from the files at the top of the repository, so that their text and links exist once.

README.md is the front page. Its links into ``docs/``, and those from ``docs/`` back up, are written for a code host;
here they are rewritten for the site, where all pages are in one folder. Other files are linked in the repository.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_TOP_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top of the repository."""
    for name, page in _TOP_PAGES.items():
        text = (_top(config) / name).read_text("utf-8")
        files.append(File.generated(config, page, content=_rewrite_links(text, "", config)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that lead out of ``docs/``."""
    del files
    return markdown if page.file.src_uri in _TOP_PAGES.values() else _rewrite_links(markdown, "docs/", config)


def _rewrite_links(markdown: str, folder: str, config: MkDocsConfig) -> str:
    return _LINK.sub(lambda link: _find_target(link[1], folder, config), markdown)


def _find_target(target: str, folder: str, config: MkDocsConfig) -> str:
    top = _top(config)
    path = (top / folder / target).resolve()
    if not path.is_relative_to(top):
        return target  # which the strict build reports
    name = path.relative_to(top).as_posix()
    if name in _TOP_PAGES:
        return _TOP_PAGES[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"{config.repo_url}/blob/main/{name}" if path.exists() else target


def _top(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent.resolve()
