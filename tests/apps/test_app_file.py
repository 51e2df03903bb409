from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.apps.app_file import load_app, parse_app
from foretell.core.app import App, Combine, Domain, ParameterType, Phase, Submission
from foretell.core.errors import Mistake, NotFoundError, SpecError

Read = Callable[[str], App]
Find = Callable[[str], tuple[Mistake, ...]]


def _app(**keys: str) -> str:
    """A file with one parameter and the changes of a test."""
    defaults = {"name": "a", "command": '[run, "{x}"]', "parameters": "{x: {values: [1, 2]}}"}
    return "".join(f"{key}: {value}\n" for key, value in (defaults | keys).items() if value)


def test_everything_is_read(example: App, tmp_path: Path) -> None:
    assert example.name == "fcnet"
    assert example.command[:4] == ("python", "{app_dir}/train.py", "--epochs", "{epochs}")
    assert example.directory == str(tmp_path.resolve())
    epochs, batch_size, dataset = example.parameters
    assert epochs.scaled_down == Domain(values=(1, 2, 4))
    assert epochs.target == Domain(low=10, high=200)
    assert batch_size.scaled_down.values == (16, 32, 64, 128, 256)
    assert dataset.type is ParameterType.TEXT
    assert dataset.scaled_down == dataset.full_scale == Domain(values=("mnist", "cifar"))
    assert example.scaled_down_resources.cores == (1, 2)
    assert example.full_scale_resources.cores == (2,)
    assert example.full_scale_resources.memory_bytes == (2 * 2**30,)
    assert example.setup == (("mkdir", "-p", "data"),)
    assert (example.repetitions, example.time_limit_s) == (2, 600)
    assert example.phases[1] == Phase(name="startup", file="phases.json", key="startup", combine=Combine.MEAN)
    assert example.estimate == "startup + epochs * epoch"


@pytest.mark.parametrize(
    ("written", "kind", "values"),
    [
        ("[1, 2, 2]", ParameterType.INTEGER, (1, 2)),
        ("[1, 2.5, 1e-3]", ParameterType.NUMBER, (1.0, 2.5, 0.001)),
        ("[true, false]", ParameterType.BOOLEAN, (True, False)),
        ("[yes, no, 007, 1_000, '3']", ParameterType.TEXT, ("yes", "no", "007", "1_000", "3")),
        ("5", ParameterType.INTEGER, (5,)),
        ("{from: 1, to: 10, step: 4}", ParameterType.INTEGER, (1, 5, 9)),
        ("{from: 0.1, to: 0.5, step: 0.1}", ParameterType.NUMBER, (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("{from: 1, to: 9, count: 3}", ParameterType.INTEGER, (1, 5, 9)),
        ("{from: 0.001, to: 0.1, count: 3, spacing: log}", ParameterType.NUMBER, (0.001, 0.01, 0.1)),
        ("{from: 3, to: 9, count: 1}", ParameterType.INTEGER, (3,)),
    ],
)
def test_values_and_their_type(read: Read, written: str, kind: ParameterType, values: tuple[object, ...]) -> None:
    (parameter,) = read(_app(parameters=f"{{x: {{values: {written}}}}}")).parameters
    assert parameter.type is kind
    assert parameter.scaled_down.values == values


def test_a_declared_type_decides(read: Read) -> None:
    (parameter,) = read(_app(parameters="{x: {type: text, values: [1, 2.50, true]}}")).parameters
    assert parameter.scaled_down.values == ("1", "2.50", "true")


def test_a_single_sweep_is_used_for_both_scales(read: Read) -> None:
    (parameter,) = read(_app(parameters="{x: {fs: [8, 9]}}")).parameters
    assert parameter.scaled_down == parameter.full_scale
    app = read(_app(resources="{cores: {sd: [1, 2]}, memory: {from: 1GB, to: 3GB, step: 1GB}, gpus: 0}"))
    assert app.full_scale_resources.cores == (1, 2)
    assert app.scaled_down_resources.memory_bytes == (2**30, 2**31, 3 * 2**30)


def test_arguments_may_be_numbers_and_have_literal_braces(read: Read) -> None:
    app = read(_app(command='[run, 3, true, "{{x}}", "{x}"]'))
    assert app.command == ("run", "3", "true", "{{x}}", "{x}")


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("", "file", "nothing"),
        ("# only a comment", "file", "nothing"),
        ("[1, 2]", "file", "a list"),
        ("name: [", "file", "valid YAML"),
        ("name: a\n\tb: 1", "file", "valid YAML"),
        ("a: \x00", "file", "'\\x00'"),
        ('a: "\\U00110000"', "file", "valid YAML"),
        ("x: &a [1]\ny: *a", "file", "alias *a"),
        ("&a [*a]", "file", "alias *a"),
        ("name: !!python/name:os.system x", "file", "the tag"),
        ("a: 1\n---\nb: 2", "file", "valid YAML"),
        ("[" * 5000, "file", "nested"),
        ("? [a]\n: 1", "file", "a name"),
        (_app(comand="[x]"), "file", "did you mean 'command'?"),
        (_app(name=""), "file", "no name"),
        (_app(name="a/b"), "name", "'a/b'"),
        (_app(name='"a\\nb"'), "name", "letters"),
        (_app(name=".."), "name", "starting with"),
        (_app(command=""), "file", "neither command nor shell"),
        (_app(shell="echo"), "shell", "both command and shell"),
        (_app(command="python train.py"), "command", "a list of words"),
        (_app(command="[]"), "command", "empty list"),
        (_app(command='[run, "{x}", [y]]'), "command, item 3", "a list"),
        (_app(command='[run, "{x}", ~]'), "command, item 3", "nothing"),
        (_app(command="[run, {x}]"), "command, item 2", 'quotes around it: "{x}"'),
        (_app(command='[run, "{x}", "{xx}"]'), "command, item 3", "did you mean 'x'?"),
        (_app(command='[run, "{x}", "a{b"]'), "command, item 3", "lone '{'"),
        (_app(command='[run, "{x}", "{memory_mb}"]'), "command, item 3", "resources.memory"),
        (_app(command='[run, "{x}", "a\\0"]'), "command, item 3", "NUL"),
        (_app(command='[run, "{x}", "\\ud800"]'), "command, item 3", "surrogates"),
        (_app(command="[run]"), "parameters.x", "without a placeholder"),
        (_app(command="", shell="'run {x}'"), "shell", '"$PARAM_x"'),
        (_app(parameters="[x]"), "parameters", "a list"),
        (_app(parameters="{x: [1]}"), "parameters.x", "a mapping such as"),
        (_app(parameters="{x: {}}"), "parameters.x", "without values"),
        (_app(parameters="{x: {target: 3}}"), "parameters.x", "without values"),
        (_app(parameters="{x: {values: 1, sd: 2}}"), "parameters.x", "values together with sd"),
        (_app(parameters="{x: {values: []}}"), "parameters.x.values", "at least one"),
        (_app(parameters="{x: {values: [a, 1]}}"), "parameters.x", "integer and text"),
        (_app(parameters="{x: {values: [.nan]}}"), "parameters.x.values, item 1", "finite"),
        (_app(parameters="{x: {values: [1.0, -.inf]}}"), "parameters.x.values, item 2", "finite"),
        (_app(parameters="{x: {values: [1e999]}}"), "parameters.x.values, item 1", "finite"),
        (_app(parameters=f"{{x: {{values: [{10**30}]}}}}"), "parameters.x.values, item 1", "integer"),
        (_app(parameters="{x: {type: integer, sd: 1, fs: b}}"), "parameters.x.fs", "an integer"),
        (_app(parameters="{x: {type: boolean, values: [yes]}}"), "parameters.x.values, item 1", "true or false"),
        (_app(parameters="{x: {type: complex, values: [1]}}"), "parameters.x.type", "one of integer, number"),
        (_app(parameters="{x: {values: [[1]]}}"), "parameters.x.values, item 1", "a list"),
        (_app(parameters="{x: {values: {from: 2, to: 1, count: 2}}}"), "parameters.x.values", "from at most to"),
        (_app(parameters="{x: {values: {from: 2, to: 3}}}"), "parameters.x.values", "neither count nor step"),
        (_app(parameters="{x: {values: {from: 2, count: 3}}}"), "parameters.x.values", "without to"),
        (_app(parameters="{x: {values: {from: 0, to: 1, count: 5}}}"), "parameters.x.values.count", "type: number"),
        (_app(parameters="{x: {fs: {from: 0, to: 8, count: 2, spacing: log}}}"), "parameters.x.fs.spacing", "log"),
        (_app(parameters="{x: {fs: {from: 1, to: 8, count: 2, spacing: lin}}}"), "parameters.x.fs.spacing", "'lin'"),
        (_app(parameters="{x: {values: {from: 1, to: 8, count: 0}}}"), "parameters.x.values.count", "10,000"),
        (_app(parameters="{x: {values: {from: 1, to: 8e9, step: 1}}}"), "parameters.x.values.step", "10,000"),
        (_app(parameters="{x: {values: {from: 1, to: 8, step: 0}}}"), "parameters.x.values.step", "above 0"),
        (_app(parameters="{x: {values: {from: a, to: b, count: 2}}}"), "parameters.x.values.from", "only numbers"),
        (_app(parameters="{x: {values: 1, target: {from: 3}}}"), "parameters.x.target", "without to"),
        (_app(parameters="{cores: {values: 1}}"), "parameters.cores", "another name"),
        (_app(parameters="{a-b: {values: 1}}"), "parameters.a-b", "letters"),
        (_app(parameters="{x: {values: 1}, x: {values: 1}}"), "parameters.x", "the same key again"),
        (_app(resources="{cores: 0}"), "resources.cores", "from 1 to"),
        (_app(resources="{cores: 1.5}"), "resources.cores", "an integer"),
        (_app(resources="{memory: 5x}"), "resources.memory", "512M"),
        (_app(resources=f"{{memory: {'9' * 400}P}}"), "resources.memory", "512M"),
        (_app(resources="{gpu: 1}"), "resources", "did you mean 'gpus'?"),
        (_app(environment="{1A: x}"), "environment.1A", "letters"),
        (_app(environment="{PARAM_x: y}"), "environment.PARAM_x", "another name"),
        (_app(environment="{A: {x}}"), "environment.A", "quotes around it"),
        (_app(working_directory="data"), "working_directory", "{app_dir}"),
        (_app(setup="[mkdir, data]"), "setup, item 1", "a list of words"),
        (_app(repetitions="0"), "repetitions", "from 1"),
        (_app(time_limit="soon"), "time_limit", "1h30m"),
        (_app(time_limit="-5"), "time_limit", "1h30m"),
        (_app(phases="{p: {}}"), "phases.p", "neither pattern nor file"),
        (_app(phases="{p: {pattern: '(a)', file: b}}"), "phases.p", "both pattern and file"),
        (_app(phases="{p: {pattern: '('}}"), "phases.p.pattern", "regular expression"),
        (_app(phases="{p: {pattern: '(a)(b)'}}"), "phases.p.pattern", "2 groups"),
        (_app(phases="{p: {pattern: 'a'}}"), "phases.p.pattern", "a group around"),
        (_app(phases="{p: {pattern: '(a)', key: b}}"), "phases.p.key", "together with pattern"),
        (_app(phases="{p: {pattern: '(a)', combine: avg}}"), "phases.p.combine", "mean"),
        (_app(phases="{x: {pattern: '(a)'}}"), "phases.x", "another name"),
        (_app(estimate="1 +"), "estimate", "formula"),
        (_app(estimate="'__import__(1)'"), "estimate", "numbers, names"),
        (_app(estimate="x * y"), "estimate", "'y'"),
        (_app(estimate="x * 2"), "estimate", "at least one phase"),
        (_app(per="x *"), "per", "formula"),
        (_app(per="x * y"), "per", "'y'"),
        (_app(per="2"), "per", "at least one of x, cores"),
        (_app(per="x * machine_cpu"), "per", "machine_cores, machine_mhz"),
        (_app(per="kind", command='[run, "{kind}"]', parameters="{kind: {values: [a, b]}}"), "per", "'kind'"),
        (_app(estimate="'" + "-" * 900 + "x'"), "estimate", "levels deep"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(find_mistakes: Find, text: str, place: str, part: str) -> None:
    mistakes = find_mistakes(text)
    assert any(mistake.place == place and part in str(mistake) for mistake in mistakes), mistakes


def test_only_mistakes_are_reported(find_mistakes: Find) -> None:
    (mistake,) = find_mistakes(_app(parameters="{x: {values: [1, b], type: integer}}"))
    assert (mistake.line, mistake.found) == (3, "'b'")


def test_all_mistakes_are_reported_together_with_their_lines(find_mistakes: Find) -> None:
    mistakes = find_mistakes(_app(name="a b", repetitions="-1", time_limit="x", color="red"))
    assert [mistake.line for mistake in mistakes] == [1, 4, 5, 6]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ('[sh, job.sh, "{x}"]', '"{app_dir}/job.sh"'),
        ('[./job.sh, "{x}"]', '"{app_dir}/job.sh"'),
        ('[job.sh, "{x}"]', '"{app_dir}/job.sh"'),
        ('[sh, "--script=job.sh", "{x}"]', '"--script={app_dir}/job.sh"'),
    ],
)
def test_a_file_next_to_the_app_file_needs_its_folder(
    find_mistakes: Find, read: Read, tmp_path: Path, command: str, expected: str
) -> None:
    tmp_path.joinpath("job.sh").touch()
    (mistake,) = find_mistakes(_app(command=command))
    assert expected in mistake.expected
    assert read(_app(command=command, working_directory='"{app_dir}"'))


def test_setup_is_checked_for_such_files(find_mistakes: Find, tmp_path: Path) -> None:
    tmp_path.joinpath("data.csv").touch()
    (mistake,) = find_mistakes(_app(setup="[[mkdir, d], [cp, data.csv, d]]"))
    assert mistake.place == "setup, item 2, item 2"


def test_values_are_checked_for_such_files(find_mistakes: Find, read: Read, tmp_path: Path) -> None:
    tmp_path.joinpath("a.csv").touch()
    (mistake,) = find_mistakes(_app(parameters="{x: {values: [a.csv]}}"))
    assert "'a.csv'" in mistake.found
    assert "{app_dir}/{x}" in mistake.expected
    assert read(_app(command='[run, "{app_dir}/{x}"]', parameters="{x: {values: [a.csv]}}"))


@pytest.mark.parametrize(
    "text", ["name: x\n\tcommand: y", "name: 'x", "name: [x", "a: b: c", "- x\nname: y", "name: @x"]
)
def test_invalid_yaml_is_reported_once(find_mistakes: Find, text: str) -> None:
    (mistake,) = find_mistakes(text)
    assert "syntax error" in mistake.found
    assert "found found" not in str(mistake)
    assert "(found" not in str(mistake)
    assert mistake.line


@pytest.mark.parametrize("memory", ["4", "[2GB, 4]", "{sd: 1, fs: 4GB}", "1.5"])
def test_memory_needs_its_unit(find_mistakes: Find, memory: str) -> None:
    (mistake,) = find_mistakes(_app(resources=f"{{memory: {memory}}}"))
    assert mistake.place.startswith("resources.memory")
    assert "4GB" in mistake.expected


def test_a_time_limit_needs_its_unit(find_mistakes: Find) -> None:
    (mistake,) = find_mistakes(_app(time_limit="20"))
    assert "10m" in mistake.expected


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("int", "integer"), ("integer", "integer"), ("float", "number"), ("number", "number"), ("str", "text"),
        ("string", "text"), ("text", "text"), ("bool", "boolean"), ("boolean", "boolean"),
    ],
)  # fmt: skip
def test_types_may_have_their_common_names(read: Read, word: str, kind: str) -> None:
    value = {"boolean": "true"}.get(kind, "1")
    app = read(_app(command='[run, "{x}"]', parameters=f"{{x: {{type: {word}, values: [{value}]}}}}"))
    assert app.parameters[0].type == kind


def test_an_unknown_type_is_named_with_the_nearest(find_mistakes: Find) -> None:
    (mistake,) = find_mistakes(_app(command='[run, "{x}"]', parameters="{x: {type: intger, values: [1]}}"))
    assert "did you mean 'integer'?" in mistake.expected


def test_too_many_runs(find_mistakes: Find) -> None:
    parameters = "{x: {values: {from: 1, to: 9000, count: 9000}}, y: {values: {from: 1, to: 120, step: 1}}}"
    (mistake,) = find_mistakes(_app(command='[run, "{x}", "{y}"]', parameters=parameters))
    assert "1,080,000 runs" in mistake.found


def test_a_shell_keeps_its_braces(read: Read) -> None:
    shell = """'gzip -dc "${PARAM_x}" | awk "{print}" | head'"""
    assert read(_app(command="", shell=shell)).shell == shell.strip("'")


def test_a_file_is_loaded(tmp_path: Path, example_text: str, example: App) -> None:
    path = tmp_path / "foretell.yaml"
    path.write_text(example_text)
    assert load_app(path) == example


def test_files_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="foretell init"):
        load_app(tmp_path / "missing.yaml")
    path = tmp_path / "binary.yaml"
    for data in (b"\xff\xfe\x00", b"a: b\n" * 100_000):
        path.write_bytes(data)
        with pytest.raises(SpecError, match=r"readable|larger"):
            load_app(path)
    with pytest.raises(SpecError, match="directory"):
        load_app(tmp_path)
    with pytest.raises(SpecError, match="null"):
        load_app(Path("a\0b"))


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["{x}", "1h", "x", "a/b"]),
)
_names = st.text(max_size=5) | st.sampled_from(["sd", "fs", "from", "to", "count", "pattern", "x"])
_data = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
_keys = ("name", "command", "shell", "parameters", "resources", "environment", "working_directory", "setup",
         "cleanup", "repetitions", "time_limit", "phases", "estimate", "per")  # fmt: skip


_ends = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2).map(sorted)
_whole_ends = st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=2).map(sorted)


@given(_ends | _whole_ends, st.integers(2, 50), st.sampled_from(["linear", "log"]))
def test_a_range_stays_between_its_ends(ends: list[int] | list[float], count: int, spacing: str) -> None:
    low, high = ends
    assume(spacing == "linear" or low > 0)
    assume(isinstance(low, float) or high - low >= count - 1)
    written = f"{{from: {low!r}, to: {high!r}, count: {count}, spacing: {spacing}}}"
    app = parse_app(_app(parameters=f"{{x: {{values: {written}}}}}"), source="foretell.yaml", directory=Path("nowhere"))
    values = app.parameters[0].scaled_down.values
    assert list(values) == sorted(set(values))
    assert (values[0], values[-1]) == (low, high)
    assert len(values) <= count
    assert len({type(value) for value in values}) == 1


@given(st.dictionaries(st.sampled_from(_keys), _data))
def test_any_data_is_an_app_or_named_mistakes(data: dict[str, object]) -> None:
    _read_or_refuse(yaml.safe_dump(data))


@given(st.text())
def test_any_text_is_an_app_or_named_mistakes(text: str) -> None:
    _read_or_refuse(text)


@given(st.data())
def test_a_damaged_file_is_an_app_or_named_mistakes(data: st.DataObject) -> None:
    text = _app(resources="{cores: [1, 2]}", phases="{p: {pattern: '([0-9])'}}", estimate="x * p", time_limit="5m")
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 10)))
    _read_or_refuse(text[:at] + data.draw(st.text(alphabet="{}[]:,'\"ax1-.\n *&!", max_size=4)) + text[until:])


def _read_or_refuse(text: str) -> None:
    try:
        app = parse_app(text, source="foretell.yaml", directory=Path("nowhere"))
    except SpecError as exc:
        mistakes = exc.mistakes
    else:
        assert app.command or app.shell
        return
    assert mistakes
    assert all(mistake.found and mistake.expected for mistake in mistakes)


@pytest.mark.parametrize("per", ["x", "x ** 2 / cores", "x / (nodes * machine_mhz)"])
def test_per_is_read(per: str) -> None:
    assert parse_app(_app(per=per), source="app.yaml", directory=Path()).per == per


def test_the_runner_is_read(read: Read) -> None:
    said = "{partition: gpu, account: PAS1, cluster: c, options: {qos: long, exclusive: ''}, sample: true}"
    app = read(_app(runner="slurm", slurm=said))
    assert app.runner == "slurm"
    assert app.submission == Submission(
        partition="gpu", account="PAS1", cluster="c", options={"qos": "long", "exclusive": ""}, sample=True
    )
    assert read(_app()).runner == "local"
    assert read(_app()).submission == Submission()


@pytest.mark.parametrize(
    ("key", "value", "place", "expected"),
    [
        ("runner", "pbs", "runner", "local or slurm"),
        ("slurm", "cpu", "slurm", "a mapping"),
        ("slurm", "{queue: cpu}", "slurm", "partition"),
        ("slurm", "{partition: my cpus}", "slurm.partition", "without spaces"),
        ("slurm", "{sample: maybe}", "slurm.sample", "true or false"),
        ("slurm", "{options: {time: 10}}", "slurm.options.time", "time_limit in the app file"),
        ("slurm", "{options: {array: 1-5}}", "slurm.options.array", "automatically"),
        ("slurm", "{options: {clusters: c}}", "slurm.options.clusters", "slurm.cluster"),
        ("slurm", "{options: {--qos: long}}", "slurm.options.--qos", "without dashes"),
        ("slurm", "{options: {comment: a b}}", "slurm.options.comment", "without spaces"),
    ],
)
def test_mistakes_under_slurm_are_reported(
    find_mistakes: Find, key: str, value: str, place: str, expected: str
) -> None:
    (mistake,) = find_mistakes(_app(**{key: value}))
    assert mistake.place == place
    assert expected in mistake.expected
