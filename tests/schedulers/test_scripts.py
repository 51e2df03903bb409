"""Job scripts: compared with golden files, and run with unusual arguments."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slurm.cluster import Cluster

from foretell.advice.api import render_script
from foretell.advice.site_lookup import find_site
from foretell.core.app import App, Domain, Parameter, ParameterType, Submission
from foretell.core.batch import Batch
from foretell.core.errors import RunnerError
from foretell.core.prediction import Estimate, Offer, Prediction, Request
from foretell.core.run import Allocation, Launch, Owner
from foretell.schedulers.shell_script import render_shell_script, render_words
from foretell.schedulers.slurm.job_array import (
    ENDED,
    SCRIPT,
    render_array_script,
    render_job_script,
    render_task_script,
)
from foretell.stores import RunStore, open_store

pytestmark = pytest.mark.slow

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


def test_plain_job() -> None:
    check_golden("job_plain.sbatch", render_job_script(PLAIN, job_name="train", allocation=Allocation()))


def test_full_job() -> None:
    text = render_job_script(
        FULL,
        job_name="naïve name\n#SBATCH --reservation=root",
        allocation=LARGE,
        gpu_model="v100",
        account="PAS1234",
        options={"constraint": "48core", "exclusive": "", "output": "logs/%j.out"},
    )
    check_golden("job_full.sbatch", text)


def test_plain_shell_script() -> None:
    check_golden("job_plain.sh", render_shell_script(PLAIN, allocation=Allocation()))


def test_full_shell_script() -> None:
    check_golden("job_full.sh", render_shell_script(FULL, allocation=LARGE))


@pytest.mark.parametrize(
    "name", sorted(str(path.relative_to(GOLDEN)) for path in (*GOLDEN.glob("job_*"), *GOLDEN.glob("scripts/*")))
)
def test_shells_can_read_them(name: Any) -> None:
    subprocess.run(["bash", "-n", GOLDEN / name], check=True)


@pytest.mark.parametrize("value", ["a\nb", "a b", "a\tb", "a\r", "\0", "ü", "\N{LINE SEPARATOR}"])
@pytest.mark.parametrize("where", ["account", "gpu_model", "partition", "option"])
def test_values_cannot_add_directives(value: str, where: str) -> None:
    allocation = Allocation(gpus=1, partition=value if where == "partition" else None)
    options = {"qos": value} if where == "option" else {}
    more = {where: value} if where in ("account", "gpu_model") else {}
    with pytest.raises(RunnerError, match="spaces"):
        render_job_script(PLAIN, job_name="x", allocation=allocation, options=options, **more)


@pytest.mark.parametrize("name", ["", "-x", "qos=high", "a b", "a\nb", "Ü"])
def test_option_names_are_checked(name: str) -> None:
    with pytest.raises(RunnerError, match="long name"):
        render_job_script(PLAIN, job_name="x", allocation=Allocation(), options={name: "1"})


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a=b", "a\nb", "$(x)"])
def test_variable_names_are_checked(name: str) -> None:
    with pytest.raises(RunnerError, match="export"):
        render_shell_script(Launch(argv=("true",), environment={name: "1"}), allocation=Allocation())


@pytest.mark.parametrize("argv", [(), ("a\0b",)])
def test_arguments_that_no_command_can_receive(argv: Any) -> None:
    with pytest.raises(RunnerError):
        render_shell_script(Launch(argv=argv), allocation=Allocation())


@given(st.text())
def test_job_names_are_one_valid_line(name: Any) -> None:
    header = render_job_script(PLAIN, job_name=name, allocation=Allocation()).split("\n")[1]
    assert header.isascii()
    assert header.startswith("#SBATCH --job-name=")
    assert not set(header.removeprefix("#SBATCH ")) & set(" \t\r'\"$`\\")


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
ODD = TEXT | st.sampled_from(
    [
        "$(touch pwned)", "`id`", "${HOME}", "$'\\n'", "'", '"', "\\", "\\\n", "\n", "a\nb", "\nEOF\n", "\r", "\t", " ",
        "", "!!", "~", "*", "-e", "--", "-n -x", "=", "a=b", "--x=$(y)", "#SBATCH --reservation=root",
        "\n#SBATCH --hold\n", "{epochs}", "%j", ";", "&& true", "\N{RIGHT-TO-LEFT OVERRIDE}", "naïve 日本",
        "\x7f", "\x1b[31m",
    ]
)  # fmt: skip
ENVIRONMENT = st.dictionaries(st.from_regex(r"T_[A-Za-z0-9_]{0,5}", fullmatch=True), ODD, min_size=1, max_size=4)
# Prints what it receives as bytes, so that no encoding hides a change.
PRINT = """
import json, os, sys
seen = [[os.fsencode(word).hex() for word in sys.argv[1:]], {k.decode(): v.hex() for k, v in os.environb.items()}]
print(json.dumps([*seen, os.getcwdb().hex()]))
"""
PRINTER = (sys.executable, "-I", "-S", "-c", PRINT)


def run_script(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    script = directory / "job"
    script.write_bytes(text.encode())
    return subprocess.run(["bash", script], cwd=directory, capture_output=True, encoding="utf-8", timeout=60)


def run_array(launch: Launch, job_name: str, directory: Path) -> str:
    """Return what the only element of an array printed; the test does the part of sbatch."""
    batch = Batch(
        id="b",
        app="app",
        name=job_name,
        directory=str(directory),
        submission=Submission(),
        run_ids=("r",),
        submitter=Owner(token="t", hostname="h", boot_id="b", pid=1, started_at=0.0),
        created_at=datetime(2026, 1, 15, tzinfo=UTC),
    )
    (directory / ENDED).mkdir()
    (directory / SCRIPT).write_bytes(render_array_script(batch, allocation=Allocation()).encode())
    (directory / "task-0.sh").write_bytes(render_task_script(launch, allocation=Allocation()).encode())
    environment = {**os.environ, "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}
    subprocess.run(["bash", directory / SCRIPT], cwd=directory, env=environment, timeout=60, check=True)
    return Path(launch.run_directory, "stdout.log").read_text("utf-8")


def check_arrived(printed: str, *, words: list[str], environment: Mapping[str, str], folder: Path) -> None:
    argv, variables, directory = json.loads(printed)
    assert argv == [word.encode().hex() for word in words]
    assert {name: variables[name] for name in environment} == {
        name: value.encode().hex() for name, value in environment.items()
    }
    assert directory == os.fsencode(folder).hex()


@settings(max_examples=40, deadline=None)
@given(
    words=st.lists(ODD, max_size=5),
    environment=ENVIRONMENT,
    folder=st.sampled_from(["plain", "it's", "a b\n$(c)", "-d"]),
)
@pytest.mark.parametrize("kind", ["sbatch", "array", "sh"])
def test_unusual_arguments_are_passed_unchanged(
    tmp_path_factory: pytest.TempPathFactory, kind: str, words: Any, environment: Any, folder: Any
) -> None:
    directory = tmp_path_factory.mktemp("job")
    (name, *_) = environment.values()
    launch = Launch(
        argv=(*PRINTER, *words),
        environment=environment,
        working_directory=str(directory / folder),
        run_directory=str(directory / folder),
        setup=(("true", *words),),
        cleanup=(("true", *words),),
    )
    allocation = Allocation(walltime_s=60)
    if kind == "array":
        printed = run_array(launch, name, directory)
    elif kind == "sbatch":
        printed = run_script(render_job_script(launch, job_name=name, allocation=allocation), directory).stdout
    else:
        printed = run_script(render_shell_script(launch, allocation=allocation), directory).stdout
    check_arrived(printed, words=words, environment=environment, folder=directory / folder)
    ours = {"job", "of-12", SCRIPT, "task-0.sh", ENDED}
    assert {path.name for path in directory.iterdir()} - ours == {folder}


@pytest.mark.slurm
def test_unusual_arguments_pass_a_real_sbatch_unchanged(slurm_environment: Cluster, tmp_path: Path) -> None:
    words = [
        "$(touch pwned)",
        "it's",
        "two\nlines\n",
        "",
        "-x",
        "a=b",
        "naïve 日本",
        "\\",
        "\n#SBATCH --hold\n",
        "%j",
        "\r",
    ]
    environment = {"T_A": "`id` $HOME", "T_B": "a\nb'\"", "T_C": ""}
    launch = Launch(
        argv=(*PRINTER, *words), environment=environment, working_directory=str(tmp_path), run_directory=str(tmp_path)
    )
    allocation = Allocation(partition="debug", walltime_s=60)
    script = tmp_path / "job.sbatch"
    options = {"output": f"{tmp_path}/printed"}
    text = render_job_script(launch, job_name=words[0], allocation=allocation, account="PAS0001", options=options)
    script.write_bytes(text.encode())
    slurm_environment.run("sbatch", "--wait", str(script))
    check_arrived((tmp_path / "printed").read_text(), words=words, environment=environment, folder=tmp_path)


def make_offer(site: str, allocation: Allocation, parameters: Mapping[str, str]) -> Offer:
    guess = Estimate(value=3000, low=2500, high=3500, level=0.9)
    prediction = Prediction(
        parameters=parameters,
        allocation=allocation,
        elapsed_s=guess,
        peak_memory_bytes=None,
        request=Request(walltime_s=3600, memory_bytes=None),
        basic=guess,
    )
    nothing = Decimal(0)
    return Offer(
        site=site,
        prediction=prediction,
        cost=nothing,
        cost_at_request=nothing,
        currency="USD",
        risk=0.05,
        pareto=True,
        measured=True,
    )


@settings(max_examples=40, deadline=None)
@given(value=ODD, other=ODD)
@pytest.mark.parametrize("site", ["pitzer", "local"])
def test_any_parameter_is_passed_unchanged(
    tmp_path_factory: pytest.TempPathFactory, site: str, value: Any, other: Any
) -> None:
    directory = tmp_path_factory.mktemp("app")
    text = Domain(values=("x",))
    app = App(
        name="odd",
        command=(*(word.replace("{", "{{").replace("}", "}}") for word in PRINTER), "--name={name}", "{other}"),
        parameters=tuple(Parameter(name=name, type=ParameterType.TEXT, full_scale=text) for name in ("name", "other")),
        environment={"SAID": "{name}:{other}"},
        working_directory="{app_dir}",
        directory=str(directory),
    )
    parameters = {"name": value, "other": other}
    offer = make_offer(site, Allocation(partition="cpu", node_type="pitzer-cpu", walltime_s=3600), parameters)
    script = render_script(app, offer, find_site(site), store=directory / "store.db", account="PAS1234")
    expected = {"PARAM_name": value, "PARAM_other": other, "SAID": f"{value}:{other}"}
    printed = run_script(script, directory).stdout
    check_arrived(printed, words=[f"--name={value}", other], environment=expected, folder=directory)
    assert "pwned" not in {path.name for path in directory.iterdir()}


# Shipped sites by name: what the scripts for them must contain, and must not.
# https://www.osc.edu/resources/technical_support/supercomputers/pitzer/batch_limit_rules
# https://docs.tacc.utexas.edu/hpc/stampede3/#table-common-sbatch-options
ASKED = {
    "osc_some_cores": ("osc", "pitzer-cpu", {"cores": 4, "memory_bytes": 20 * GIGABYTE}),
    "osc_memory_by_cores": ("osc", "cardinal-cpu", {"cores": 16}),
    "osc_gpus": ("osc", "pitzer-gpu", {"cores": 10, "gpus": 2, "memory_bytes": 90 * GIGABYTE}),
    "osc_nodes": ("osc", "cardinal-cpu", {"cores": 96, "nodes": 2}),
    "osc_one_cluster": ("ascend", "ascend-nextgen", {"cores": 60, "gpus": 1}),
    "tacc_whole_node": ("tacc", "stampede3-skx", {"cores": 48, "memory_bytes": 100 * GIGABYTE}),
    "tacc_gpus": ("tacc", "stampede3-h100", {"cores": 96, "gpus": 4, "memory_bytes": 200 * GIGABYTE}),
    "tacc_nodes": ("vista", "vista-gh", {"cores": 72, "gpus": 1, "nodes": 8}),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with open_store(tmp_path_factory.mktemp("scripts") / "store.db") as opened:
        yield opened


@pytest.mark.parametrize("name", ASKED)
def test_scripts_of_real_sites(name: Any, store: RunStore) -> None:
    place, node_type, asked = ASKED[name]
    site = find_site(place)
    partition = site.find_node_type(node_type).partition
    allocation = Allocation(partition=partition, node_type=node_type, walltime_s=26 * 3600, **asked)
    app = App(
        name="train",
        command=("python", "train.py", "--epochs", "{epochs}", "--note", "{note}"),
        parameters=tuple(
            Parameter(name=name, type=ParameterType.TEXT, full_scale=Domain(values=("x",)))
            for name in ("epochs", "note")
        ),
        environment={"OMP_NUM_THREADS": "{cores}"},
        directory="/home/ada/project",
    )
    offer = make_offer(place, allocation, {"epochs": "100", "note": "it's $HOME"})
    text = render_script(app, offer, site, store=store, account="PAS1234" if site.currency == "USD" else "ABC-23001")
    check_golden(f"scripts/{name}.sbatch", text)


@pytest.mark.parametrize(("said", "asked"), [("PAS1234", "PAS1234"), (None, "lab42")])
def test_the_users_account_overrides_the_sites(said: str | None, asked: str, store: RunStore) -> None:
    place = find_site("pitzer")
    site = replace(place, script={**place.script, "account": "lab42"})
    app = App(name="train", command=("true",), parameters=(), directory="/home/ada/project")
    offer = make_offer("pitzer", Allocation(partition="cpu", node_type="pitzer-cpu", walltime_s=60), {})
    text = render_script(app, offer, site, store=store, account=said)
    assert re.findall(r"^#SBATCH --account=(.*)$", text, re.M) == [asked]


@pytest.mark.parametrize("name", ASKED)
def test_options_that_a_site_refuses_are_left_out(name: Any) -> None:
    options = set(re.findall(r"^#SBATCH --([a-z-]+)", (GOLDEN / f"scripts/{name}.sbatch").read_text(), re.M))
    assert {"account", "partition", "nodes", "ntasks-per-node", "time"} <= options
    if name.startswith("tacc"):
        assert not options & {"mem", "mem-per-cpu", "gpus-per-node", "gres", "array", "export", "clusters"}
    else:
        assert "clusters" in options  # one login node serves several
        assert ("mem" in options) == ("memory_bytes" in ASKED[name][2])  # else memory follows the cores
        assert ("gpus-per-node" in options) == ("gpus" in ASKED[name][2])


@pytest.mark.parametrize("word", ["time", "if", "A=b", "for"])
def test_the_first_argument_is_always_a_command(word: str, tmp_path: Path) -> None:
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
def test_cleanup_runs_and_keeps_the_exit_code(tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    launch = Launch(
        argv=command,
        working_directory=str(tmp_path),
        run_directory=str(tmp_path),
        cleanup=(("false",), ("touch", "cleaned")),
    )
    answer = run_script(render_job_script(launch, job_name="x", allocation=Allocation()), tmp_path)
    assert answer.returncode == code
    assert (tmp_path / "cleaned").exists()


def test_failing_setup_ends_the_job(tmp_path: Path) -> None:
    launch = Launch(
        argv=("touch", "ran"), working_directory=str(tmp_path), run_directory=str(tmp_path), setup=(("false",),)
    )
    answer = run_script(render_job_script(launch, job_name="x", allocation=Allocation()), tmp_path)
    assert answer.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_walltime_ends_the_local_script(tmp_path: Path) -> None:
    launch = Launch(argv=("sleep", "600"), working_directory=str(tmp_path), run_directory=str(tmp_path))
    assert run_script(render_shell_script(launch, allocation=Allocation(walltime_s=0.5)), tmp_path).returncode == 124
