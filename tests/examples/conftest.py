import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from foretell.apps.app_file import load_app
from foretell.apps.command import build_launch
from foretell.core.app import App, Value
from foretell.core.run import RunSpec

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def load_example() -> Callable[[str], App]:
    return lambda name: load_app(EXAMPLES / name / "foretell.yaml")


@pytest.fixture
def import_script() -> Callable[[str], ModuleType]:
    """A script as a module, without running it."""

    def load(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, EXAMPLES / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look themselves up there
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in an empty folder, with these options."""

    def run(path: str, *options: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(EXAMPLES / path), *options]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def run_example(tmp_path: Path) -> Callable[[App, Mapping[str, Value]], str]:
    """Run an app's command as its file has it; its output."""

    def run(app: App, parameters: Mapping[str, Value]) -> str:
        launch = build_launch(app, RunSpec(app=app.name, parameters=parameters), run_directory=tmp_path)
        python = str(Path(sys.executable).parent)
        environment = {"PATH": f"{python}{os.pathsep}{os.environ['PATH']}", **launch.environment}
        for words in (*launch.setup, launch.argv, *launch.cleanup):
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            if words == launch.argv:
                output = done.stdout
        return output

    return run
