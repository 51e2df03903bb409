"""Every command and every snippet of the pages runs, and prints what the pages say it prints.

Outputs are compared with their numbers. ``<!-- measured -->`` before a block says that its figures are times or sizes
that were measured on some machine: then only their places count.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from foretell.advice.sites import parse_sites
from foretell.apps.app_file import parse_app
from foretell.apps.sweep import build_sweep
from foretell.campaigns.api import generate
from foretell.core.device_figures import read_device_file
from foretell.runtimes.api import build

_ROOT = Path(__file__).parents[2]
_PAGES = [
    _ROOT / "README.md",
    *(
        page for page in sorted((_ROOT / "docs").glob("*.md")) if page.name != "benchmarks.md"
    ),  # its commands take minutes
]
_FENCE = re.compile(
    r"(?P<skip><!-- not run: \S.*? -->\n)?(?P<measured><!-- measured -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
_FRAME = re.compile(r"[─│╭╮╰╯━]+")  # around tables and cards
_FIGURE = re.compile(r"[<+-]?\d[\d,.]*(e-?\d+)?( ?(ns|µs|ms|s|min|h|d|B|KB|MB|GB|TB|%|x)(?!\w))?( #)*")
_STARTS_IN_THE_REPOSITORY = {"README.md", "getting-started.md"}
_STARTS_FROM_NOTHING = {"getting-started.md", "memory.md", "scripts.md", "workloads.md"}
_FILE = re.compile(r"# ([\w-]+\.(?:py|toml))\n")  # how a block begins that is a file
_PLAIN = re.compile(r"foretell [^$|<>;&]*")
_WORD = re.compile(r"[A-Za-z_]{3,}")
# Which model wins, which of two nodes at the same price comes first, and whether a figure lies inside its bounds,
# differs from run to run; quick jobs cost nothing.
_MAY_DIFFER = {
    "law",
    "gaussian",
    "process",
    "boosting",
    "trees",
    "blend",
    "taken",
    "inside",
    "outside",
    "cost",
    "min",
    "Gold",
}
# Fewer values of the example's parameters: runs and models of seconds.
_FEW_VALUES = {
    "dataset": {"values": ["mnist", "cifar"]},
    "samples": {"type": "integer", "sd": [1500, 4000], "fs": [10000, 16000]},
    "hidden": {"type": "integer", "values": [200]},
    "batch_size": {"type": "integer", "sd": [32], "fs": [96]},
    "epochs": {"type": "integer", "sd": [2], "fs": [10]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A fenced block; not run where the page says why; ``measured`` where its figures depend on the machine."""

    language: str
    text: str
    skipped: bool
    measured: bool

    def commands(self) -> list[tuple[str, str]]:
        """Each command with what the page says it prints."""
        if self.language == "bash":
            lines = (re.sub(r" +#.*", "", line) for line in self.text.splitlines())
            return [(line, "") for line in lines if line]
        before, *parts = re.split(r"^\$ ", self.text, flags=re.M)
        assert not before, f"a console block starts with a command, not with {before!r}"
        return [(command, said) for command, _, said in (part.partition("\n") for part in parts)]


def read_snippets(page: Path, *languages: str) -> list[Snippet]:
    found = _FENCE.finditer(page.read_text("utf-8"))
    snippets = [
        Snippet(language=one["language"], text=one["text"], skipped=bool(one["skip"]), measured=bool(one["measured"]))
        for one in found
    ]
    return [snippet for snippet in snippets if snippet.language in languages]


def pages_with(*languages: str) -> list[Path]:
    return [page for page in _PAGES if any(not snippet.skipped for snippet in read_snippets(page, *languages))]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has cloned, with a quick stand-in for the example's training."""
    clone = tmp_path_factory.mktemp("clone")
    example = clone / "examples" / "fcnet"
    example.mkdir(parents=True)
    described = yaml.safe_load((_ROOT / "examples/fcnet/foretell.yaml").read_text("utf-8"))
    (example / "foretell.yaml").write_text(yaml.safe_dump({**described, "parameters": _FEW_VALUES}, sort_keys=False))
    shutil.copy(Path(__file__).with_name("quick_train.py"), example / "train.py")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(_ROOT / name, clone)
    return clone


@pytest.fixture(scope="session")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with runs and a model."""
    built = Path(shutil.copytree(clone, tmp_path_factory.mktemp("built") / "clone"))
    app = built / "examples/fcnet/foretell.yaml"
    generate(app)
    build(app)
    return built


@pytest.fixture
def workspace(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    kind = "clone" if page.name in _STARTS_FROM_NOTHING else "built"
    workspace = Path(shutil.copytree(request.getfixturevalue(kind), tmp_path / "clone"))
    for snippet in read_snippets(page, "python", "toml"):
        if named := _FILE.match(snippet.text):
            (workspace / "examples/fcnet" / named[1]).write_text(snippet.text)
    return workspace


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("console", "bash"), ids=lambda page: page.name)
@pytest.mark.usefixtures("fake_slurm")
def test_commands_run_and_print_what_the_page_says(page: Path, workspace: Path, foretell: Callable[..., Any]) -> None:
    snippets = [snippet for snippet in read_snippets(page, "console", "bash") if not snippet.skipped]
    shell = _Shell(folder=workspace if page.name in _STARTS_IN_THE_REPOSITORY else workspace / "examples/fcnet")
    for snippet in snippets:
        for command, documented in snippet.commands():
            printed = shell.run(command, foretell)
            missing = find_missing(documented, printed, measured=snippet.measured)
            assert missing is None, f"{command!r} did not print {missing!r}, but:\n{printed}"


def find_missing(documented: str, printed: str, *, measured: bool) -> str | None:
    """The first part of a documented output, between two ``…``, that was not printed; numbers count unless measured."""
    flat = _flatten(printed, measured=measured)
    return next(
        (part for part in documented.split("…") if not _is_printed(_flatten(part, measured=measured), flat, measured)),
        None,
    )


def _is_printed(part: str, printed: str, measured: bool) -> bool:
    if measured and set(_WORD.findall(part)) & _MAY_DIFFER:
        return set(_WORD.findall(part)) <= {*_WORD.findall(printed), *_MAY_DIFFER}
    return part in printed


def _flatten(text: str, *, measured: bool) -> str:
    """Without frames and line breaks, so that columns may have other widths; measured figures become ``#``."""
    flat = " ".join(_FRAME.sub(" ", text).split())
    return re.sub(r"#(?:[ ,]*#)+", "#", _FIGURE.sub("#", flat)) if measured else flat


@pytest.mark.parametrize(
    ("documented", "printed", "measured", "missing"),
    [
        ("Time 5.6 s", "│ Time    5.6 s │", False, None),
        ("Time 5.6 s", "│ Time    5.7 s │", False, "Time 5.6 s"),
        ("Time 5.6 s", "│ Time    1 min 5 s │", True, None),
        ("Time 5.6 s", "│ Memory  5.6 s │", True, "Time 5.6 s"),
        ("48 runs\n…\n3 failed", "48 runs of 2\nand 3 failed", False, None),
    ],
)
def test_outputs_are_compared_with_their_numbers(
    documented: str, printed: str, measured: bool, missing: str | None
) -> None:
    assert find_missing(documented, printed, measured=measured) == missing


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python_runs(page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace / "examples/fcnet")
    names: dict[str, object] = {"__name__": page.stem}
    for snippet in read_snippets(page, "python"):
        exec(compile(snippet.text, page.name, "exec"), names)


@pytest.mark.parametrize("page", pages_with("yaml"), ids=lambda page: page.name)
def test_app_files_parse(page: Path) -> None:
    for snippet in read_snippets(page, "yaml"):
        if not snippet.text.startswith("# mistakes"):
            assert build_sweep(parse_app(snippet.text, source=page.name, directory=Path("/nowhere")))


@pytest.mark.parametrize("page", pages_with("toml"), ids=lambda page: page.name)
def test_site_and_device_files_parse(page: Path, tmp_path: Path) -> None:
    for snippet in read_snippets(page, "toml"):
        if page.name == "devices.md":
            path = tmp_path / "device.toml"
            path.write_text(snippet.text)
            assert read_device_file(path)
        else:
            assert parse_sites(snippet.text, source=page.name)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_what_is_not_run_says_why_and_is_rare(page: Path) -> None:
    skipped = [snippet for snippet in read_snippets(page, "console", "bash") if snippet.skipped]
    assert page.read_text("utf-8").count("<!-- not run") == len(skipped) <= 1


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    kinds = set(re.findall(r"^```(.*\S)$", page.read_text("utf-8"), re.M))
    assert kinds <= {"console", "bash", "python", "yaml", "toml", "text", "sql"}  # which tests/security runs


@dataclass
class _Shell:
    """As much of a shell as the pages need: most of their commands run without the wait for a new Python."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, line: str, foretell: Callable[..., Any]) -> str:
        """What a command prints."""
        command = re.sub(r"\$(\w+)", lambda name: self.variables[name[1]], line)
        if assigned := re.fullmatch(r'(\w+)="(.*)"', command):
            self.variables[assigned[1]] = assigned[2]
            return ""
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return ""
        if not _PLAIN.fullmatch(command):
            return self._run_in_bash(command)
        done = foretell(*shlex.split(command)[1:], folder=self.folder)
        assert done.code == 0, f"{command!r} failed:\n{done.err}"
        return str(done.out + done.err)

    def _run_in_bash(self, command: str) -> str:
        # `make` is only asked whether it knows how: these tests are part of what it would do.
        rehearsed = re.sub(r"^make ", "make --dry-run ", command)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", rehearsed],
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "COLUMNS": "100", "LANG": "C.UTF-8", **_find_fake_slurm()},
            encoding="utf-8",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, f"{command!r} failed:\n{done.stdout}"
        return done.stdout


def _find_fake_slurm() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("FAKE_SLURM")}
