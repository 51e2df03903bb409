import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.advice.training_examples import build_node, build_site, build_training, search_site

from foretell.advice.advise_results import TrainingOffer
from foretell.advice.policy import choose_policy
from foretell.advice.script_strategy import find_strategy
from foretell.advice.training_job import TrainingJob
from foretell.advice.training_offers import build_site_advice
from foretell.advice.training_script import build_command, name_job, render_training_script
from foretell.core.run import Allocation
from foretell.core.site import Site
from foretell.schedulers.slurm.distributed_launch import render_launch, split_command
from foretell.workloads.scripts.script_facts import RecordedScript, ScriptFacts

GOLDEN = Path(__file__).parents[1] / "golden"
SITE = build_site(build_node("fast", cluster="big"), scheduler="slurm")


def offer_of(gpus: int, *, site: Site = SITE, job: TrainingJob | None = None) -> TrainingOffer:
    job = job or build_training()
    advice = build_site_advice(site, search_site(site, job), job, choose_policy(), risk=0.05)
    return next(each for each in advice.offers if each.candidate.gpus == gpus)


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    checked = subprocess.run(["bash", "-n", str(path)], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("name", "gpus"), [("one_gpu", 1), ("one_node", 4), ("several_nodes", 8)])
def test_the_job_script(name: str, gpus: int) -> None:
    job = build_training(command=("python", "train.py", "--name", "it's $HOME", "--epochs", "10"))
    offer = offer_of(gpus, job=job)
    text = render_training_script(offer, job, SITE, account="PAS1234", options={"qos": "long"})
    check_golden(f"job_training_{name}.sbatch", text)


def test_without_a_scheduler_it_is_for_a_shell() -> None:
    site = build_site(build_node("fast"), scheduler="shell")
    job = build_training()
    check_golden("job_training.sh", render_training_script(offer_of(4, site=site), job, site))


def test_a_site_leaves_out_what_its_scheduler_refuses_and_adds_its_options() -> None:
    site = Site(
        name="here",
        title="Here",
        scheduler="slurm",
        node_types=(build_node("fast", cluster="big"),),
        script={"clusters": "{cluster}", "account": "lab"},
        refuses=("mem", "gpus-per-node"),
    )
    text = render_training_script(offer_of(4, site=site), build_training(), site)
    assert "--clusters=big" in text
    assert "--account=lab" in text
    assert "--mem" not in text
    assert "--gpus-per-node" not in text


@pytest.mark.parametrize(
    ("command", "program", "script"),
    [
        ("python train.py -x 1", "python", "train.py -x 1"),
        ("python -u train.py", "python -u", "train.py"),
        ("python -m pkg.train --lr 1", "python", "-m pkg.train --lr 1"),
        ("torchrun --nproc-per-node 1 train.py -x", "python", "train.py -x"),
        ("/opt/env/bin/python -m torch.distributed.run --nnodes=1 train.py", "/opt/env/bin/python", "train.py"),
        ("accelerate launch --num_processes=1 train.py", "python", "train.py"),
        ("torchrun --nproc_per_node=1 -m pkg.train --lr 1", "python", "-m pkg.train --lr 1"),
        ("./train.sh", "", "./train.sh"),
    ],
)
def test_a_launcher_of_the_command_is_replaced(command: str, program: str, script: str) -> None:
    assert split_command(command.split()) == (program.split(), script.split())


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (["python", "train.py"], "torchrun --standalone --nproc-per-node=4 train.py"),
        (["python3.11", "-u", "t.py"], "python3.11 -u -m torch.distributed.run --standalone --nproc-per-node=4 t.py"),
        (["python", "time"], "torchrun --standalone --nproc-per-node=4 time"),
    ],
)
def test_processes_are_started_by_the_python_of_the_command(command: Sequence[str], starts: str) -> None:
    assert list(render_launch(command, Allocation(gpus=4, cores=8), scheduled=True)) == [starts]


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("python -u train.py", "python -u train.py"),
        ("torchrun --nproc_per_node 1 train.py -x", "torchrun --standalone --nproc-per-node=1 train.py -x"),
        (
            "python3.11 -m torch.distributed.run t.py",
            "python3.11 -m torch.distributed.run --standalone --nproc-per-node=1 t.py",
        ),
        ("accelerate launch --mixed_precision bf16 t.py", "accelerate launch --mixed_precision bf16 t.py"),
        ("torchrun train", "torchrun train"),
    ],
)
@pytest.mark.parametrize("gpus", [0, 1])
def test_one_process_keeps_the_launcher_that_its_script_needs(command: str, starts: str, gpus: int) -> None:
    assert list(render_launch(command.split(), Allocation(gpus=gpus, cores=8), scheduled=True)) == [starts]


@pytest.mark.parametrize("option", ["--mixed_precision bf16", "--mixed_precision=bf16"])
def test_what_accelerate_sets_is_kept_on_several_gpus(option: str) -> None:
    command = f"accelerate launch {option} t.py --mixed_precision no".split()
    lines = list(render_launch(command, Allocation(gpus=2, cores=8), scheduled=True))
    assert lines == [
        "export ACCELERATE_MIXED_PRECISION=bf16",
        "torchrun --standalone --nproc-per-node=2 t.py --mixed_precision no",
    ]


def test_the_job_of_a_model_runs_its_file() -> None:
    assert build_command("models/net.py:build") == ("python", "models/net.py")
    assert build_command("package.module:build") == ("python", "train.py")
    assert name_job(build_training(name="models/net.py:build")) == "net"


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("model = DistributedDataParallel(model)", "ddp"),
        ("from accelerate import Accelerator", "ddp"),
        ("fully_shard(model)", "fsdp"),
        ("model.cuda()", "one"),
    ],
)
def test_how_a_script_shares_its_training_is_read_from_its_words(tmp_path: Path, text: str, layout: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    from tests.advice.training_examples import WORKLOAD

    assert (
        find_strategy(RecordedScript(workload=WORKLOAD, facts=ScriptFacts(), command=("python", str(path)))) == layout
    )


def test_wrappers_come_before_words(tmp_path: Path) -> None:
    from tests.advice.training_examples import WORKLOAD

    facts = ScriptFacts(wrappers=("FullyShardedDataParallel",))
    gone = ("python", str(tmp_path / "gone.py"))
    assert find_strategy(RecordedScript(workload=WORKLOAD, facts=facts, command=gone)) == "fsdp"
    assert find_strategy(RecordedScript(workload=WORKLOAD, facts=ScriptFacts(), command=gone)) == "one"
    several = ScriptFacts(processes=4)
    assert find_strategy(RecordedScript(workload=WORKLOAD, facts=several, command=("./x",))) == "ddp"
