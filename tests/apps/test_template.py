from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.apps.app_file import parse_app
from foretell.apps.command import build_launch, build_spec
from foretell.apps.command_line import read_command_line, read_resources
from foretell.apps.sweep import build_sweep
from foretell.apps.template import render_template, suggest_name
from foretell.core.app import App, Scale
from foretell.core.errors import SpecError
from foretell.core.run import Allocation

_COMMAND = [
    "python", "./train.py", "--epochs", "100", "--batch-size=64", "--lr", "1e-3", "--data", "conf/a.csv",
    "--verbose", "--flag", "True", "--cores", "4", "mnist", "7",
]  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tmp_path.joinpath("conf").mkdir()
    tmp_path.joinpath("conf/a.csv").touch()
    tmp_path.joinpath("train.py").touch()
    return tmp_path


def _read(text: str, directory: Path) -> App:
    return parse_app(text, source="foretell.yaml", directory=directory)


def test_a_command_becomes_an_app(directory: Path) -> None:
    app = _read(render_template(_COMMAND, name="fc net", directory=directory), directory)
    assert app.name == "fc-net"
    assert app.command == (
        "python", "{app_dir}/train.py", "--epochs", "{epochs}", "--batch-size={batch_size}", "--lr", "{lr}",
        "--data", "{app_dir}/conf/a.csv", "--verbose", "--flag", "{flag}", "--cores", "{cores}", "mnist", "{value}",
    )  # fmt: skip
    domains = {
        parameter.name: (parameter.scaled_down.values, parameter.full_scale.values) for parameter in app.parameters
    }
    assert domains == {
        "epochs": ((6, 12, 25), (50, 100)),
        "batch_size": ((4, 8, 16), (32, 64)),
        "lr": ((0.001,), (0.001,)),
        "flag": (("True",), ("True",)),
        "value": ((1,), (3, 7)),
    }
    assert app.full_scale_resources.cores == (4,)


def test_lines_are_short_and_commented(directory: Path) -> None:
    text = render_template(_COMMAND, name="fcnet", directory=directory)
    assert max(map(len, text.splitlines())) <= 100
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_commented_lines_are_valid(directory: Path) -> None:
    text = render_template(["run", "--epochs", "100"], name="a", directory=directory)
    keys = (
        "environment",
        "working_directory",
        "setup",
        "cleanup",
        "time_limit",
        "phases",
        "  epoch",
        "  startup",
        "estimate",
    )
    for key in keys:
        assert f"\n# {key}:" in text
        text = text.replace(f"\n# {key}:", f"\n{key}:")
    app = _read(text, directory)
    assert app.estimate == "startup + epochs * epoch"
    assert app.phases[0].pattern == r"epoch \d+: ([0-9.]+) s"


def test_an_interpreter_keeps_its_module(directory: Path) -> None:
    app = _read(render_template(["python", "-m", "pkg.train", "-n", "1"], name="a", directory=directory), directory)
    assert app.command == ("python", "-m", "pkg.train", "-n", "{n}")


def _init(typed: str, directory: Path) -> App:
    return _read(render_template(read_command_line(typed), name="a", directory=directory), directory)


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("run --seed 42 --n 64", ["run", "--seed", "42", "--n", "{n}"]),
        ("run --random-state=7 --np_seed 3", ["run", "--random-state=7", "--np_seed", "3"]),
        ("run --n 64 > out.txt 2>&1", ["run", "--n", "{n}"]),
        ("run --n 64 &> 'my log' >>x 2>/dev/null &", ["run", "--n", "{n}"]),
        ("run 'a > b' \"c | d\" e\\;f", ["run", "a > b", "c | d", "e;f"]),
        ("time nohup run --n 64", ["run", "--n", "{n}"]),
        ("python -m pkg.train --n=64", ["python", "-m", "pkg.train", "--n={n}"]),
        ("xz -k -9 --level -3", ["xz", "-k", "-9", "--level", "{level}"]),
        ("mpirun -np 4 ./solve -n 64", ["mpirun", "-np", "{cores}", "./solve", "-n", "{n}"]),
        ("mpiexec -n 4 --map-by core ./solve", ["mpiexec", "-n", "{cores}", "--map-by", "core", "./solve"]),
        ("srun --ntasks=4 --exclusive ./solve", ["srun", "--ntasks={cores}", "--exclusive", "./solve"]),
        ("srun -N 2 -n 8 ./solve", ["srun", "-N", "2", "-n", "8", "./solve"]),
        ("make -j 4 all", ["make", "-j", "{cores}", "all"]),
        ("make -j4 all", ["make", "-j{cores}", "all"]),
        ("xz -T4 notes", ["xz", "-T{cores}", "notes"]),
        ("nice -n 5 ./solve -n 64", ["nice", "-n", "5", "./solve", "-n", "{n}"]),
        ("mpirun --mca btl tcp -np 4 solve", ["mpirun", "--mca", "btl", "tcp", "-np", "{cores}", "solve"]),
        ("srun -p test -D /x -n4 ./solve", ["srun", "-p", "test", "-D", "/x", "-n{cores}", "./solve"]),
        ("sort -n big.txt --output out/x", ["sort", "-n", "big.txt", "--output", "out/x"]),
        ("run --num-threads 4", ["run", "--num-threads", "{cores}"]),
    ],
)  # fmt: skip
def test_typed_commands(directory: Path, typed: str, command: list[str]) -> None:
    app = _init(typed, directory)
    assert list(app.command) == command
    if "{cores}" in "".join(command) or "-N" in command:
        assert app.full_scale_resources.cores == (4,)


@pytest.mark.parametrize(
    ("typed", "command", "resources", "kept"),
    [
        ("srun -n 4 --gpus 2 ./a", "srun -n {cores} --gpus {gpus} ./a", (4, 2, 1), []),
        ("srun -n 4 --gres=gpu:a100:2 ./a", "srun -n {cores} --gres=gpu:a100:{gpus} ./a", (4, 2, 1), []),
        ("srun --gres=nvme:2 ./a", "srun --gres=nvme:2 ./a", (1, 0, 1), []),
        (
            "srun -N 2 -n 64 --gpus-per-node=4 ./a",
            "srun -N 2 -n 64 --gpus-per-node={gpus} ./a",
            (32, 4, 2),
            ["-N 2", "-n 64"],
        ),
        ("srun -N 2 --gpus 8 ./a", "srun -N 2 --gpus 8 ./a", (1, 4, 2), ["-N 2", "--gpus 8"]),
        ("srun -N 2 --ntasks-per-node=8 ./a", "srun -N {nodes} --ntasks-per-node={cores} ./a", (8, 0, 2), []),
        (
            "srun --ntasks=4 --cpus-per-task=2 ./a",
            "srun --ntasks=4 --cpus-per-task=2 ./a",
            (8, 0, 1),
            ["--ntasks=4", "--cpus-per-task=2"],
        ),
        ("srun -n 4 -c 1 ./a", "srun -n {cores} -c 1 ./a", (4, 0, 1), []),
        ("srun -n 1 -c 8 ./a", "srun -n 1 -c {cores} ./a", (8, 0, 1), []),
        ("srun -N 2 -n 2 -c 8 ./a", "srun -N {nodes} -n {nodes} -c {cores} ./a", (8, 0, 2), []),
        ("srun -N 1 -n 4 ./a", "srun -N 1 -n {cores} ./a", (4, 0, 1), ["-N 1"]),
        ("srun -n 4 --gpus-per-task=1 ./a", "srun -n 4 --gpus-per-task=1 ./a", (4, 4, 1), ["-n 4", "-per-task=1"]),
        ("srun -n 8 --ntasks-per-node=4 ./a", "srun -n 8 --ntasks-per-node=4 ./a", (4, 0, 2), ["-n 8", "-per-node=4"]),
        ("mpirun -N 4 ./a", "mpirun -N {cores} ./a", (4, 0, 1), []),  # of Slurm's srun it is the nodes
        ("mpirun -np 2 -x OMP_NUM_THREADS=4 ./a", "mpirun -np 2 -x OMP_NUM_THREADS=4 ./a", (8, 0, 1), ["-np 2", "=4"]),
        ("mpiexec -genv OMP_NUM_THREADS 4 -n 1 ./a", "mpiexec -genv OMP_NUM_THREADS {cores} -n 1 ./a", (4, 0, 1), []),
        ("mpirun -np 2 ./a --threads 4", "mpirun -np 2 ./a --threads 4", (8, 0, 1), ["-np 2", "--threads 4"]),
        ("run --threads 8 --n-jobs 2", "run --threads 8 --n-jobs 2", (16, 0, 1), ["--threads 8", "--n-jobs 2"]),
        ("torchrun --nproc-per-node=4 t.py", "torchrun --nproc-per-node={cores} t.py", (4, 0, 1), ["GPU"]),
        (
            "torchrun --nnodes 2 --nproc_per_node 4 --master-port 29500 t.py",
            "torchrun --nnodes {nodes} --nproc_per_node {cores} --master-port 29500 t.py",
            (4, 0, 2),
            ["GPU"],
        ),
        (
            "srun -N 2 -c 8 --gpus-per-node=4 torchrun --nnodes=2 --nproc-per-node=4 t.py",
            "srun -N {nodes} -c {cores} --gpus-per-node={gpus} torchrun --nnodes={nodes} --nproc-per-node={gpus} t.py",
            (8, 4, 2),
            [],
        ),
        ("srun -N 2-4 ./a", "srun -N 2-4 ./a", (1, 0, 1), ["-N 2-4", "check resources"]),
        ("xz -T0 notes", "xz -T0 notes", (1, 0, 1), ["-T0", "check resources"]),
    ],
)  # fmt: skip
def test_resources_are_those_of_the_launcher(
    directory: Path, typed: str, command: str, resources: tuple[int, int, int], kept: list[str]
) -> None:
    app = _init(typed, directory)
    assert " ".join(app.command) == command
    given = app.full_scale_resources
    assert (given.cores[-1], given.gpus[-1], given.nodes[-1]) == resources
    notes = " ".join(read_resources(read_command_line(typed)).notes)
    assert all(part in notes for part in kept)
    assert bool(notes) == bool(kept)


def test_numbers_that_do_not_follow_resources_are_noted_in_the_file(directory: Path) -> None:
    text = render_template(read_command_line("srun -N 2 -n 64 ./a --n 3"), name="a", directory=directory)
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    assert "Note: '-N 2' and '-n 64' stay as typed: changing resources does not change" in comment


def test_the_number_of_threads_is_kept(directory: Path) -> None:
    app = _init("OMP_NUM_THREADS=4 mpirun -np 2 ./a", directory)
    assert (app.environment, app.full_scale_resources.cores) == ({"OMP_NUM_THREADS": "4"}, (8,))
    app = _init("OMP_NUM_THREADS=4 ./a --threads 8", directory)
    assert (app.environment, app.full_scale_resources.cores) == ({"OMP_NUM_THREADS": "4"}, (8,))
    app = _init("OMP_NUM_THREADS=1 mpirun -np 2 ./a", directory)
    assert (app.environment, app.command[2]) == ({"OMP_NUM_THREADS": "1"}, "{cores}")


def test_variables_before_a_command_become_its_environment(directory: Path) -> None:
    for typed in ("OMP_NUM_THREADS=4 MODE='a b' ./app --n 64", "env OMP_NUM_THREADS=4 MODE='a b' ./app --n 64"):
        app = _init(typed, directory)
        assert app.environment == {"OMP_NUM_THREADS": "{cores}", "MODE": "a b"}
        assert app.command == ("./app", "--n", "{n}")
        assert app.full_scale_resources.cores == (4,)


@pytest.mark.parametrize(
    ("typed", "shell"),
    [
        ("sort train.py | head -n 64", 'sort "$PARAM_app_dir"/train.py | head -n "$PARAM_n"'),
        ("cd x && run --n=64 > out; ls", 'cd x && run --n="$PARAM_n" > out; ls'),
        ("run --n 64 < train.py", 'run --n "$PARAM_n" < "$PARAM_app_dir"/train.py'),
        ("run --to $HOME/x --n 64", 'run --to $HOME/x --n "$PARAM_n"'),
        ("(run --n 64)", '(run --n "$PARAM_n")'),
        ("srun -n 4 ./a --n 64 | tee log", 'srun -n "$PARAM_cores" ./a --n "$PARAM_n" | tee log'),
        ("OMP_NUM_THREADS=4 ./a --n 64 | tee log", 'OMP_NUM_THREADS="$PARAM_cores" ./a --n "$PARAM_n" | tee log'),
        (
            "export OMP_NUM_THREADS=4; mpirun -n 2 ./a --n 64",
            'export OMP_NUM_THREADS=4; mpirun -n 2 ./a --n "$PARAM_n"',
        ),
        ("make -j 8 && mpirun -n 2 ./a --n 64", 'make -j "$PARAM_cores" && mpirun -n 2 ./a --n "$PARAM_n"'),
    ],
)
def test_commands_that_need_a_shell(directory: Path, typed: str, shell: str) -> None:
    app = _init(typed, directory)
    assert app.shell == shell
    assert [parameter.full_scale.values[-1] for parameter in app.parameters if parameter.name == "n"] == [64]


def test_parts_that_are_left_out_are_noted() -> None:
    notes = read_command_line("time run > out.txt 2>&1 &").notes
    assert [note.split(":")[0] for note in notes] == [
        "left out '&'", "left out '> out.txt'", "left out '2>&1'", "left out 'time'",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "left_out", "command"),
    [
        ("time -p ./a.out -n 64", "time -p", "./a.out -n {n}"),
        ("/usr/bin/time -v ./a.out -n 64", "/usr/bin/time -v", "./a.out -n {n}"),
        ("time -f %e -o log nohup ./a.out -n 64", "time -f %e -o log", "./a.out -n {n}"),
    ],
)
def test_time_is_left_out_with_its_options(directory: Path, typed: str, left_out: str, command: str) -> None:
    line = read_command_line(typed)
    assert line.notes[0] == f"left out {left_out!r}: runs are timed anyway"
    assert " ".join(_init(typed, directory).command) == command
    assert suggest_name(line) == "a.out"


def test_a_program_of_ones_own_called_time_is_run(directory: Path) -> None:
    assert _init("./time -n 64", directory).command == ("./time", "-n", "{n}")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("srun --exclusive solve -n 3 | tee log", "solve"),
        ("time numactl -m 0 ./solve | tee log", "solve"),
        ("mpirun -np 4 ./solve -n 3", "solve"),
        ("OMP_NUM_THREADS=2 /opt/app", "app"),
        ("python -m pkg.train", "pkg.train"),
        ("cat x | python train.py", "train"),
    ],
)
def test_the_name_is_that_of_the_program(typed: str, name: str) -> None:
    assert suggest_name(read_command_line(typed)) == name


@given(st.text(max_size=40))
def test_any_command_gives_a_file_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, typed: str) -> None:
    directory = tmp_path_factory.getbasetemp()
    try:
        command = read_command_line(typed)
    except ValueError:
        return
    if command.words or command.shell:
        suggest_name(command)
        try:
            text = render_template(command, name="a", directory=directory)
        except SpecError:
            return
        _read(text, directory)


def test_many_numbers_stay_few_runs(directory: Path) -> None:
    command = ["run", *(str(number) for number in range(100, 130))]
    assert len(build_sweep(_read(render_template(command, name="a", directory=directory), directory))) < 200


def test_without_a_command_there_is_no_app(directory: Path) -> None:
    for command in ([], ["run", "a\udc80"]):
        with pytest.raises(SpecError, match="words of text"):
            render_template(command, name="a", directory=directory)


_words = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.integers().map(str),
    st.floats().map(str),
    st.from_regex(r"--?[a-z]{0,8}(=[a-z0-9{}.'\"]{0,6})?", fullmatch=True),
    st.sampled_from(
        ["template.yaml", "./template.yaml", "--x=template.yaml", "-1=template.yaml", "--cores", "--run_dir"]
    ),
    st.sampled_from(
        [
            "srun",
            "mpirun",
            "torchrun",
            "make",
            "-n",
            "-N",
            "-c",
            "-j8",
            "-G",
            "--gpus",
            "--threads",
            "OMP_NUM_THREADS=4",
        ]
    ),
    st.integers(1, 9).map(str),
    st.sampled_from(["true", "True", "null", "~", ".inf", "007", "+5", "1.10", "{x}", "---", "a: b", "#", "sort", ""]),
)


@given(st.lists(_words, min_size=1, max_size=8), st.text(max_size=10))
def test_any_command_gives_a_valid_file_with_the_same_command(
    tmp_path_factory: pytest.TempPathFactory, command: list[str], name: str
) -> None:
    directory = tmp_path_factory.getbasetemp() / "any"
    directory.mkdir(exist_ok=True)
    directory.joinpath("template.yaml").touch()
    app = _read(render_template(command, name=name, directory=directory), directory)
    largest = {parameter.name: parameter.full_scale.values[-1] for parameter in app.parameters}
    cores, gpus, nodes = (getattr(app.full_scale_resources, key)[-1] for key in ("cores", "gpus", "nodes"))
    spec = build_spec(app, largest, allocation=Allocation(cores=cores, gpus=gpus, nodes=nodes))
    argv = build_launch(app, spec, run_directory=directory).argv
    assert len(argv) == len(command)
    assert all(_same(filled, word, directory) for filled, word in zip(argv, command, strict=True))


def _same(filled: str, word: str, directory: Path) -> bool:
    """Return whether the full-scale run gets the typed word, except for the folder and the format of a number."""
    plain = filled.replace(f"{directory}/", "")
    if plain == word.replace("./template", "template"):
        return True
    return float(plain.rpartition("=")[2]) == float(word.rpartition("=")[2])


def test_full_scale_is_the_typed_command(directory: Path) -> None:
    app = _read(render_template(_COMMAND, name="a", directory=directory), directory)
    last = build_sweep(app)[-1]
    assert last.scale is Scale.FULL_SCALE
    argv = build_launch(app, last, run_directory=directory).argv
    assert argv[2:5] == ("--epochs", "100", "--batch-size=64")
