"""Job scripts, compared whole with files people can read, and really run with odd words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.entities.run import Allocation, Launch
from foretell.errors import RunnerError
from foretell.runners.shell_script import render_shell_script, render_words
from foretell.runners.slurm.script import render_job_script

GOLDEN = Path(__file__).parents[1] / "golden"
GIGABYTE = 2**30

PLAIN = Launch(
    argv=("python", "train.py", "--epochs", "100"),
    working_directory="/home/ada/project",
    run_directory="/home/ada/project/run",
)
FULL = Launch(
    argv=("python", "train.py", "--name", "it's $HOME", "--note", "two\nlines"),
    environment={"OMP_NUM_THREADS": "8", "GREETING": "hello `whoami`"},
    working_directory="/home/ada/my project",
    run_directory="/home/ada/my project/run",
    setup=(("module-load", "cuda"), ("mkdir", "-p", "scratch dir")),
    cleanup=(("rm", "-rf", "scratch dir"),),
)
LARGE = Allocation(
    cores=8, memory_bytes=5 * GIGABYTE + 1, gpus=2, nodes=2, partition="gpu-long", walltime_s=30 * 3600 + 1
)


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_plain_job():
    check_golden("job_plain.sbatch", render_job_script(PLAIN, job_name="train", allocation=Allocation()))


def test_full_job():
    text = render_job_script(
        FULL,
        job_name="naïve name\n#SBATCH --reservation=root",
        allocation=LARGE,
        gpu_model="v100",
        account="PAS1234",
        options={"constraint": "48core", "exclusive": "", "output": "logs/%j.out"},
    )
    check_golden("job_full.sbatch", text)


def test_plain_shell_script():
    check_golden("job_plain.sh", render_shell_script(PLAIN, allocation=Allocation()))


def test_full_shell_script():
    check_golden("job_full.sh", render_shell_script(FULL, allocation=LARGE))


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("job_*")))
def test_shells_can_read_them(name):
    subprocess.run(["bash", "-n", GOLDEN / name], check=True)


@pytest.mark.parametrize("value", ["a\nb", "a b", "a\tb", "a\r", "\0", "ü", "\N{LINE SEPARATOR}"])
@pytest.mark.parametrize("where", ["account", "gpu_model", "partition", "option"])
def test_values_cannot_add_directives(value, where):
    allocation = Allocation(gpus=1, partition=value if where == "partition" else None)
    options = {"qos": value} if where == "option" else {}
    more = {where: value} if where in ("account", "gpu_model") else {}
    with pytest.raises(RunnerError, match="blanks"):
        render_job_script(PLAIN, job_name="x", allocation=allocation, options=options, **more)


@pytest.mark.parametrize("name", ["", "-x", "qos=high", "a b", "a\nb", "Ü"])
def test_option_names_are_checked(name):
    with pytest.raises(RunnerError, match="long name"):
        render_job_script(PLAIN, job_name="x", allocation=Allocation(), options={name: "1"})


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a=b", "a\nb", "$(x)"])
def test_variable_names_are_checked(name):
    with pytest.raises(RunnerError, match="export"):
        render_shell_script(Launch(argv=("true",), environment={name: "1"}), allocation=Allocation())


@pytest.mark.parametrize("argv", [(), ("a\0b",)])
def test_words_no_command_can_have(argv):
    with pytest.raises(RunnerError):
        render_shell_script(Launch(argv=argv), allocation=Allocation())


@given(st.text())
def test_every_job_name_is_one_harmless_line(name):
    header = render_job_script(PLAIN, job_name=name, allocation=Allocation()).split("\n")[1]
    assert header.isascii()
    assert header.startswith("#SBATCH --job-name=")
    assert not set(header.removeprefix("#SBATCH ")) & set(" \t\r'\"$`\\")


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
ODD = TEXT | st.sampled_from(["$(touch pwned)", "'", '"', "\n", "`id`", "a\nb", "\\", "!!", "~", "*", "-e", "", "\r"])


def run_script(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    script = directory / "job"
    script.write_bytes(text.encode())
    return subprocess.run(["bash", script], cwd=directory, capture_output=True, encoding="utf-8", timeout=60)


@settings(max_examples=25, deadline=None)
@given(words=st.lists(ODD, max_size=5), variable=ODD, folder=st.sampled_from(["plain", "it's", "a b\n$(c)", "-d"]))
@pytest.mark.parametrize("kind", ["sbatch", "sh"])
def test_odd_words_arrive_unharmed(tmp_path_factory, kind, words, variable, folder):
    directory = tmp_path_factory.mktemp("job")
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.getcwd()]))"
    launch = Launch(
        argv=(sys.executable, "-I", "-S", "-c", code, *words),
        environment={"ODD": variable},
        working_directory=str(directory / folder),
        run_directory=str(directory / folder),
        setup=(("true", *words),),
        cleanup=(("true", *words),),
    )
    allocation = Allocation(walltime_s=60)
    if kind == "sbatch":
        text = render_job_script(launch, job_name=variable, allocation=allocation)
    else:
        text = render_shell_script(launch, allocation=allocation)
    answer = run_script(text, directory)
    assert json.loads(answer.stdout) == [words, variable, str(directory / folder)]
    assert {path.name for path in directory.iterdir()} == {"job", folder}


@pytest.mark.parametrize("word", ["time", "if", "A=b", "for"])
def test_first_word_is_always_a_command(word, tmp_path):
    program = tmp_path / word
    program.write_text("#!/bin/sh\necho ran $1\n")
    program.chmod(0o755)
    answer = subprocess.run(
        ["bash", "-c", render_words([word, "x"])],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "ran x\n", answer.stderr


@pytest.mark.parametrize(
    ("command", "code"), [(("true",), 0), (("sh", "-c", "exit 5"), 5), (("no-such-command",), 127)]
)
def test_cleanup_runs_and_the_exit_code_stays(tmp_path, command, code):
    launch = Launch(
        argv=command,
        working_directory=str(tmp_path),
        run_directory=str(tmp_path),
        cleanup=(("false",), ("touch", "cleaned")),
    )
    answer = run_script(render_job_script(launch, job_name="x", allocation=Allocation()), tmp_path)
    assert answer.returncode == code
    assert (tmp_path / "cleaned").exists()


def test_failing_setup_ends_the_job(tmp_path):
    launch = Launch(
        argv=("touch", "ran"), working_directory=str(tmp_path), run_directory=str(tmp_path), setup=(("false",),)
    )
    answer = run_script(render_job_script(launch, job_name="x", allocation=Allocation()), tmp_path)
    assert answer.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_walltime_ends_the_local_script(tmp_path):
    launch = Launch(argv=("sleep", "600"), working_directory=str(tmp_path), run_directory=str(tmp_path))
    assert run_script(render_shell_script(launch, allocation=Allocation(walltime_s=0.5)), tmp_path).returncode == 124
