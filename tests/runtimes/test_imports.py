"""What predictions load: numpy, and nothing that is needed for fitting, tables, plots or pages only."""

import subprocess
import sys
from pathlib import Path

import pytest

import foretell

HEAVY = ("sklearn", "scipy", "pandas", "skops", "matplotlib", "jinja2", "torch", "threadpoolctl", "numpy.ma")

COMMAND = """
import sys
from foretell.cli.main import main
sys.argv = ["foretell", *sys.argv[1:]]
try:
    main()
except SystemExit as exc:
    assert not exc.code, exc.code
print("LOADED", *sorted(set({heavy!r}) & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    lines = [f"{size},{kind},{size * factor}" for size in range(1, 13) for kind, factor in (("a", 1), ("b", 2))]
    (folder / "runs.csv").write_text("\n".join(["size,kind,took", *lines]))
    with foretell.open_store(folder / "store.db") as opened:
        foretell.import_runs(folder / "runs.csv", app="demo", columns=foretell.Columns(elapsed="took"), store=opened)
        foretell.build("demo", store=opened)
    return folder / "store.db"


@pytest.mark.parametrize("command", ["predict", "recommend", "explain"])
@pytest.mark.parametrize("size", ["3", "500"])
def test_commands_that_predict_load_no_heavy_library(command: str, size: str, store: Path) -> None:
    options = ("--store", str(store), "--set", f"size={size}", "--set", "kind=b")
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.format(heavy=HEAVY), command, "demo", *options],
        cwd=store.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]
