"""``python -m benchmarks install`` without installing anything."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import install


def _write_distribution(site_packages: Path, name: str, content: str) -> None:
    facts = site_packages / f"{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "RECORD").write_text(f"{name}.py,,\n../../bin/{name},,\n")
    (site_packages / f"{name}.py").write_text(content)


def test_files_of_each_package_are_added_up(tmp_path: Path) -> None:
    _write_distribution(tmp_path, "small", "x" * 10)
    _write_distribution(tmp_path, "large", "x" * 1000)
    assert list(install.measure_packages(tmp_path).items()) == [("large", 1000), ("small", 10)]


def test_pins_are_found_by_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("# as tested\nSQLAlchemy==2.1\nruamel.yaml==0.19\n\nmypy_extensions==1\n")
    pins = {
        "sqlalchemy": "SQLAlchemy==2.1",
        "ruamel-yaml": "ruamel.yaml==0.19",
        "mypy-extensions": "mypy_extensions==1",
    }
    assert install._read_constraints(tmp_path) == pins


def test_a_revision_is_checked_out_and_removed_again(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    for text in ("first", "second"):
        (repository / "file").write_text(text)
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "-qm", text], check=True)
    with install.check_out(repository, "HEAD~1", tmp_path / "earlier") as earlier:
        assert (earlier / "file").read_text() == "first"
    assert not (tmp_path / "earlier").exists()
    with (
        pytest.raises(SystemExit, match="no-such-revision"),
        install.check_out(repository, "no-such-revision", tmp_path),
    ):
        pass


def test_sizes_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    before = {"packages": 42, "size_bytes": 500e6, "wheel_bytes": 2e6, "each_bytes": {"scipy": 143e6, "pandas": 80e6}}
    after = {"packages": 20, "size_bytes": 310e6, "wheel_bytes": 2e6, "each_bytes": {"scipy": 143e6}}
    (goal,) = install.list_goals({"before": before, "after": after})
    assert (goal.value, goal.met) == (62, False)
    assert install.list_goals({"after": after}) == []
    rows = install._build_sizes({"before": before, "after": after}).columns[2].cells
    assert list(rows) == ["20", "310.0", "2.0", "143.0", ""]
