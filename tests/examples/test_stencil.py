import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from foretell.core.app import App, Value

TINY: dict[str, Value] = {"size": 16, "steps": 7, "output_every": 3}


@pytest.fixture
def solve(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("stencil/solve.py")


class TestAppFile:
    def test_its_command_writes_its_phases_and_its_cleanup_removes_the_snapshots(
        self, load_example: Callable[[str], App], run_example: Callable[[App, Mapping[str, Value]], str], tmp_path: Path
    ) -> None:
        app = load_example("stencil")
        run_example(app, TINY)
        for phase in app.phases:
            assert phase.file is not None
            assert phase.key is not None
            assert json.loads((tmp_path / phase.file).read_text())[phase.key] > 0
        assert not (tmp_path / "snapshots").exists()


class TestSolver:
    def test_snapshots_are_finite_and_spread(
        self, run_script: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
    ) -> None:
        run_script("stencil/solve.py", "--size", "96", "--steps", "900", "--output-every", "300")
        snapshots = [np.load(path) for path in sorted((tmp_path / "snapshots").iterdir())]
        assert [snapshot.shape for snapshot in snapshots] == [(96, 96)] * 3
        assert all(np.isfinite(snapshot).all() and snapshot.min() >= 0 for snapshot in snapshots)
        reached = [int((snapshot > 0.1).sum()) for snapshot in snapshots]
        assert 0 < reached[0] < reached[-1]

    def test_diffusion_moves_mass_but_keeps_it(self, solve: ModuleType) -> None:
        """On a periodic grid only feed and kill change the total of both substances."""
        now, then = solve.Fields.start(20, seed=0), solve.Fields.start(20, seed=0)
        for _ in range(10):
            u, v = now.u[1:-1, 1:-1].sum(), now.v[1:-1, 1:-1].sum()
            solve.advance(now, then)
            gained = solve.FEED * (20 * 20 - u) - (solve.FEED + solve.KILL) * v
            assert then.u[1:-1, 1:-1].sum() + then.v[1:-1, 1:-1].sum() == pytest.approx(u + v + gained, rel=1e-12)
            now, then = then, now

    def test_bands_do_not_show_in_the_result(self, solve: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        now = solve.Fields.start(20, seed=0)
        whole, banded = solve.Fields.start(20, seed=0), solve.Fields.start(20, seed=0)
        solve.advance(now, whole)
        monkeypatch.setattr(solve, "BAND_CELLS", 3 * 20)
        assert len(list(solve.bands(20))) == 7
        solve.advance(now, banded)
        np.testing.assert_array_equal(whole.u, banded.u)
        np.testing.assert_array_equal(whole.v, banded.v)
