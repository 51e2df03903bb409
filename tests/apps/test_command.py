import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.apps.command import build_launch, build_spec, find_program_problem, parse_value
from foretell.core.app import App, Parameter, ParameterType, Scale, Value
from foretell.core.errors import SpecError
from foretell.core.run import Allocation, Launch, RunSpec

_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def _spec(**parameters: Value) -> RunSpec:
    return RunSpec(app="a", parameters=parameters, allocation=Allocation(cores=3, memory_bytes=5 * 2**20, gpus=1))


def _start(launch: Launch) -> str:
    environment = {**os.environ, **launch.environment}
    return subprocess.run(launch.argv, env=environment, capture_output=True, text=True, check=True).stdout


def test_every_placeholder_is_filled(tmp_path: Path) -> None:
    app = App(
        name="a",
        command=("run", "{x}", "{cores}/{memory_mb}/{gpus}/{nodes}", "{app_dir}/t", "{run_dir}/o", "{{x}}", "{{{x}}}"),
        directory=str(tmp_path),
        environment={"THREADS": "{cores}"},
        setup=(("mkdir", "{x}"),),
        cleanup=(("rm", "{run_dir}"),),
    )
    launch = build_launch(app, _spec(x=64.0), run_directory=tmp_path / "r")
    assert launch.argv == ("run", "64", "3/5/1/1", f"{tmp_path}/t", f"{tmp_path}/r/o", "{x}", "{64}")
    assert launch.environment["THREADS"] == "3"
    assert launch.environment["PARAM_x"] == "64"
    assert launch.environment["PARAM_app_dir"] == str(tmp_path)
    assert launch.working_directory == launch.run_directory == str(tmp_path / "r")
    assert (launch.setup, launch.cleanup) == ((("mkdir", "64"),), (("rm", f"{tmp_path}/r"),))


@pytest.mark.parametrize(
    ("value", "word"), [(True, "true"), (False, "false"), (2, "2"), (0.1, "0.1"), (1e-05, "1e-05")]
)
def test_values_as_arguments(value: Value, word: str) -> None:
    launch = build_launch(App(name="a", command=("run", "{x}")), _spec(x=value), run_directory=Path("r"))
    assert launch.argv[1] == word


@given(_texts)
def test_any_value_is_one_argument(value: str) -> None:
    app = App(name="a", command=("run", "{x}", "--x={x}"))
    assert build_launch(app, _spec(x=value), run_directory=Path("r")).argv == ("run", value, f"--x={value}")


@pytest.mark.parametrize("value", ["a b", "$(touch hacked)", "'; touch hacked; '", "{app_dir}", "line\nline", "ö"])
def test_a_value_reaches_the_process_unchanged(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell = App(name="a", shell='printf "%s" "$PARAM_x"')
    assert _start(build_launch(shell, _spec(x=value), run_directory=tmp_path)) == value
    words = App(name="a", command=(sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", "{x}"))
    assert _start(build_launch(words, _spec(x=value), run_directory=tmp_path)) == value
    assert not list(tmp_path.iterdir())


def test_the_shorter_limit_applies() -> None:
    app = App(name="a", command=("run",), time_limit_s=60)
    for walltime_s, limit in [(None, 60), (30.0, 30), (90.0, 60)]:
        spec = replace(_spec(), allocation=Allocation(walltime_s=walltime_s))
        assert build_launch(app, spec, run_directory=Path("r")).time_limit_s == limit
    assert build_launch(replace(app, time_limit_s=None), _spec(), run_directory=Path("r")).time_limit_s is None


def test_apps_that_cannot_be_launched() -> None:
    with pytest.raises(SpecError, match="imported"):
        build_launch(App(name="a"), _spec(), run_directory=Path("r"))
    app = App(name="a", command=("run", "{memory_mb}"))
    with pytest.raises(SpecError, match="memory in the allocation"):
        build_launch(app, RunSpec(app="a", parameters={}), run_directory=Path("r"))
    with pytest.raises(SpecError, match=r"\{y\} without a value"):
        build_launch(App(name="a", command=("{y}",)), _spec(x=1), run_directory=Path("r"))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ParameterType.INTEGER, " 64 ", 64),
        (ParameterType.INTEGER, "64.0", 64),
        (ParameterType.INTEGER, "1e3", 1000),
        (ParameterType.INTEGER, str(2**63 - 1), 2**63 - 1),
        (ParameterType.NUMBER, "3", 3.0),
        (ParameterType.NUMBER, "-.5", -0.5),
        (ParameterType.BOOLEAN, "True", True),
        (ParameterType.TEXT, " a ", " a "),
    ],
)
def test_texts_that_are_values(kind: ParameterType, text: str, value: Value) -> None:
    parsed = parse_value(Parameter(name="x", type=kind), text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ParameterType.INTEGER, "1.5"),
        (ParameterType.INTEGER, ""),
        (ParameterType.INTEGER, str(2**63)),
        (ParameterType.INTEGER, "9" * 5000),
        (ParameterType.INTEGER, "٣"),
        (ParameterType.NUMBER, "nan"),
        (ParameterType.NUMBER, "-inf"),
        (ParameterType.NUMBER, "1e999"),
        (ParameterType.NUMBER, "1_000"),
        (ParameterType.BOOLEAN, "1"),
        (ParameterType.TEXT, "a\0"),
        (ParameterType.TEXT, "\udc80"),
    ],
)
def test_texts_that_are_not_values(kind: ParameterType, text: str) -> None:
    with pytest.raises(SpecError, match=r"x: found .* expected"):
        parse_value(Parameter(name="x", type=kind), text)


@given(
    st.one_of(
        st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), _texts
    )
)
def test_values_survive_rendering_and_parsing(value: Value) -> None:
    kind = {
        int: ParameterType.INTEGER,
        float: ParameterType.NUMBER,
        bool: ParameterType.BOOLEAN,
        str: ParameterType.TEXT,
    }
    app = App(name="a", parameters=(Parameter(name="x", type=kind[type(value)]),))
    assert build_spec(app, {"x": value}, allocation=Allocation()).parameters == {"x": value}


@given(st.sampled_from(ParameterType), st.text())
def test_any_text_is_a_value_or_a_named_mistake(kind: ParameterType, text: str) -> None:
    try:
        value = parse_value(Parameter(name="x", type=kind), text)
    except SpecError:
        return
    assert isinstance(value, bool | int | float | str)


def test_a_configuration_becomes_a_run(example: App) -> None:
    allocation = Allocation(cores=2)
    spec = build_spec(example, {"epochs": "100", "batch_size": 64.0, "dataset": "mnist"}, allocation=allocation)
    assert spec.parameters == {"epochs": 100, "batch_size": 64, "dataset": "mnist"}
    assert (spec.app, spec.allocation, spec.scale) == ("fcnet", allocation, Scale.FULL_SCALE)


def test_all_mistakes_of_a_configuration_are_reported_together(example: App) -> None:
    with pytest.raises(SpecError) as caught:
        build_spec(example, {"epoch": 3, "batch_size": "many"}, allocation=Allocation())
    mistakes = {mistake.place: str(mistake) for mistake in caught.value.mistakes}
    assert list(mistakes) == ["epoch", "epochs", "batch_size", "dataset"]
    assert "did you mean 'epochs'?" in mistakes["epoch"]
    assert "no value" in mistakes["dataset"]
    assert "'many'" in mistakes["batch_size"]


def test_programs_that_cannot_start(tmp_path: Path, read: Callable[[str], App]) -> None:
    script = tmp_path / "job.sh"
    script.touch(mode=0o644)
    app = read('name: a\ncommand: ["{app_dir}/job.sh"]')
    assert "chmod" in (find_program_problem(app) or "")
    script.chmod(0o755)
    assert find_program_problem(app) is None
    assert "not found" in (find_program_problem(App(name="a", command=("no-such-program",))) or "")
    assert find_program_problem(App(name="a", command=("{x}",))) is None
    assert find_program_problem(App(name="a", shell="anything")) is None
    assert find_program_problem(App(name="a")) is None


def test_a_parameter_with_one_full_scale_value_may_be_omitted(read: Callable[[str], App]) -> None:
    app = read(
        'name: a\ncommand: [run, "{steps}", "{size}"]\n'
        "parameters:\n  steps: {sd: [1, 2], fs: [10, 20]}\n  size: {sd: [3, 4], fs: 8}\n"
    )
    assert build_spec(app, {"steps": "15"}, allocation=Allocation()).parameters == {"steps": 15, "size": 8}
    with pytest.raises(SpecError, match="steps: found no value"):
        build_spec(app, {}, allocation=Allocation())
