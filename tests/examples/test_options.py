"""Bad options are refused in a line, before anything is written."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("script", "options", "named"),
    [
        ("fcnet/train.py", ["--samples", "0"], "--samples"),
        ("fcnet/train.py", ["--epochs", "-1"], "--epochs"),
        ("fcnet/train.py", ["--hidden", "many"], "'many'"),
        ("fcnet/train.py", ["--dataset", "imagenet"], "mnist"),
        ("fcnet/train.py", ["--samples", "10", "--batch-size", "11"], "--batch-size 11"),
        ("stencil/solve.py", ["--size", "0"], "--size"),
        ("stencil/solve.py", ["--steps", "1.5"], "'1.5'"),
        ("stencil/solve.py", ["--seed", "-1"], "--seed"),
        ("stencil/solve.py", ["--steps", "5", "--output-every", "6"], "--output-every 6"),
    ],
)
def test_bad_ones_are_refused(
    script: str,
    options: list[str],
    named: str,
    run_script: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    done = run_script(script, *options)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
