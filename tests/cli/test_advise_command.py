"""``foretell advise`` as its users call it."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.measure.machine import find_cpu_model

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = """
from torch import nn


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 10))
"""
SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
data = TensorDataset(torch.randn(640, 32), torch.randint(0, 10, (640,)))
loader = DataLoader(data, batch_size=32)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(int(sys.argv[1])):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
"""
TRAINING = ("net.py:build_model", "--input", "64,512", "--epochs", "20", "--samples", "100000")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advise")
    (folder / "net.py").write_text(MODEL)
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def advised(folder: Path, foretell: Callable[..., Any]) -> Any:
    return foretell("advise", *TRAINING, "--site", "ascend", "--max-cost", "5", "--json", folder=folder)


def list_keys(value: Any, path: str = "") -> Iterator[str]:
    """Every place in a record; the lists and mappings of free names count as one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            key = "*" if path.endswith((".phases", ".parts", ".data")) else name
            yield from list_keys(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from list_keys(inner, f"{path}[]")
    else:
        yield path.removeprefix(".")


def test_everything_is_in_the_json_and_its_keys_stay(advised: Any) -> None:
    text = "\n".join(sorted(set(list_keys(advised.record)))) + "\n"
    path = GOLDEN / "advise_keys.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_pick_is_within_the_limits_and_has_a_script(advised: Any, folder: Path) -> None:
    record = advised.record
    assert advised.code == 0
    assert record["picked"]["cost_at_request"] <= 5
    (site,) = record["sites"]
    assert site["offers"][site["picked"]] == record["picked"]
    script = (folder / record["script"]).read_text()
    assert "#SBATCH --clusters=ascend" in script
    assert "net.py" in script.splitlines()[-1]


def test_people_get_a_table_a_script_and_a_plot(folder: Path, foretell: Callable[..., Any]) -> None:
    limits = ("--max-time", "2h", "--evaluation", "5%", "--checkpoints", "4", "--load-per-batch", "20ms")
    more = ("--account", "PAS1", "--option", "qos=long", "--output", "own.sbatch", "--plot", "plot.svg", "--rows", "3")
    run = ("--run", "python main.py --lr 1")
    done = foretell("advise", *TRAINING, "--site", "osc", *limits, *more, *run, folder=folder)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    for part in ("ask for", "Why: the cheapest of", "20 epochs of 100,000 samples", "Runner-up", "Does not work"):
        assert part in said
    assert "with the loading of its data. A step has" in said
    assert "evaluation" in said
    assert all(len(line) <= 100 for line in done.out.splitlines())
    script = (folder / "own.sbatch").read_text()
    assert "--account=PAS1" in script
    assert "--qos=long" in script
    assert "main.py --lr 1" in script
    assert (folder / "plot.svg").stat().st_size > 1000


def test_an_edited_script_is_kept(folder: Path, foretell: Callable[..., Any]) -> None:
    (folder / "mine.sbatch").write_text("#!/bin/bash\nmine\n")
    done = foretell("advise", *TRAINING, "--site", "ascend", "--output", "mine.sbatch", folder=folder)
    assert done.code == 1
    assert "ask for" in done.out
    assert "mine.sbatch was not written" in done.err
    assert "mine" in (folder / "mine.sbatch").read_text()


def test_sites_are_compared(folder: Path, foretell: Callable[..., Any]) -> None:
    (folder / "own.toml").write_text(
        '[sites.own]\ntitle = "Own"\nscheduler = "shell"\n[sites.own.nodes.box]\ncores = 8\nmemory = "64GB"\ngpus = 2\n'
        'gpu_model = "RTX 4090"\n'
    )
    done = foretell("advise", *TRAINING, "--compare", "ascend,vista,own.toml", "--output", "any.sh", folder=folder)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "Costs are in SU and USD" in said
    for site in ("ascend", "vista", "own"):
        assert f" {site} " in said
    assert "start it with: bash any.sh" in done.err


def test_a_script_says_its_own_epochs(folder: Path, foretell: Callable[..., Any]) -> None:
    options = ("--site", "ascend", "--json", "--output", "script.sbatch")
    done = foretell("advise", *options, "--", sys.executable, "train.py", "30", folder=folder)
    assert done.code == 0, done.err
    record = done.record
    assert (record["job"]["epochs"], record["job"]["samples"], record["job"]["grows"]) == (30, 640, True)
    assert {offer["gpus"] for offer in record["sites"][0]["offers"]} == {1}  # nothing in it shares a training
    assert record["picked"]["steps"] == 600


def test_nodes_without_gpus_are_predicted_from_a_core(folder: Path, foretell: Callable[..., Any]) -> None:
    (folder / "cpu.toml").write_text(
        '[sites.cpus]\ntitle = "CPUs"\nscheduler = "slurm"\n[sites.cpus.nodes.epyc]\ncores = 16\nmemory = "64GB"\n'
        'cpu_model = "AMD EPYC 7763"\n[sites.cpus.nodes.other]\ncores = 2\nmemory = "8GB"\n'
    )
    site = ("--site", "cpus", "--site-file", "cpu.toml")
    record = foretell("advise", *TRAINING, *site, "--json", "--output", "cpu.sbatch", folder=folder).record
    offers = record["sites"][0]["offers"]
    assert {offer["prediction"]["allocation"]["cores"] for offer in offers} == {1, 2, 4, 8, 16}
    times = {offer["prediction"]["allocation"]["cores"]: offer["step"] for offer in offers}
    assert times[16]["value"] < times[4]["value"] < times[1]["value"]
    assert times[16]["high"] / times[16]["low"] > times[1]["high"] / times[1]["low"]
    assert "export OMP_NUM_THREADS=" in (folder / "cpu.sbatch").read_text()
    (obstacle,) = record["sites"][0]["obstacles"]
    assert "there is no model of this CPU" in obstacle["reason"]
    named = foretell("advise", *TRAINING, *site, "--cpu", "EPYC core", "--json", "--output", "x.sbatch", folder=folder)
    assert named.record["sites"][0]["obstacles"] == []


def test_nodes_without_gpus_have_a_table_of_their_own(folder: Path, foretell: Callable[..., Any]) -> None:
    (folder / "table.toml").write_text(
        '[sites.cpus]\ntitle = "CPUs"\nscheduler = "slurm"\n[sites.cpus.nodes.epyc]\ncores = 4\nmemory = "64GB"\n'
        'cpu_model = "AMD EPYC 7763"\n'
    )
    site = ("--site", "cpus", "--site-file", "table.toml", "--output", "table.sbatch")
    out = foretell("advise", *TRAINING, *site, folder=folder).out
    (head,) = (line for line in out.splitlines() if "Node type" in line)
    assert "Cores" in head
    assert "GPUs" not in head
    assert "Layout" not in head


def test_job_of_a_model_asks_for_its_command(folder: Path, foretell: Callable[..., Any]) -> None:
    site = ("--site", "ascend", "--output", "check.sbatch")
    done = foretell("advise", *TRAINING, *site, folder=folder)
    assert "name the command that does by --run" in " ".join(done.out.split())
    *_, check, remedy, command = (folder / "check.sbatch").read_text().splitlines()
    assert check.startswith("# CHECK THE NEXT LINE: no command was given")
    assert "--run 'COMMAND'" in remedy
    assert "net.py" in command
    named = foretell("advise", *TRAINING, *site, "--run", "python main.py", folder=folder)
    assert "--run" not in named.out
    assert "CHECK" not in (folder / "check.sbatch").read_text()


def build_local_cpu_site(folder: Path) -> tuple[str, ...]:
    """A site whose nodes are predicted from one core, whatever the CPU of this machine is."""
    (folder / "same.toml").write_text(
        '[sites.same]\ntitle = "Same"\nscheduler = "slurm"\n[sites.same.nodes.core]\ncores = 1\nmemory = "64GB"\n'
        f'cpu_model = "{find_cpu_model()}"\n'
    )
    return "--site", "same", "--site-file", "same.toml", "--cpu", "EPYC core", "--output", "same.sbatch"


@pytest.mark.slow
def test_run_is_made_and_both_answers_are_given(
    folder: Path, foretell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    site, script = build_local_cpu_site(folder), ("--", sys.executable, "train.py", "40")
    record = foretell("advise", *site, "--json", "--then-run", *script, folder=folder).record
    (run,) = record["runs"]["used"]
    assert (run["device"], run["cores"], run["batch"]) == (find_cpu_model(), 1, 32)
    before, after = (each["picked"]["prediction"]["elapsed_s"] for each in (record["before"], record))
    assert after["high"] / after["low"] < before["high"] / before["low"]
    assert record["before"]["runs"] is None
    text = foretell("advise", *site, *script, folder=folder)  # the run was stored
    assert "1 run corrected the step of" in " ".join(text.out.split())
    alone = foretell("advise", *site, "--no-runs", "--json", *script, folder=folder).record
    assert alone["runs"] is None
    assert alone["picked"]["step"] == record["before"]["picked"]["step"]


@pytest.mark.slow
def test_model_is_run_with_random_data(
    folder: Path, foretell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    site = build_local_cpu_site(folder)
    done = foretell("advise", *TRAINING, *site, "--store", "own.db", "--then-run", folder=folder)
    said = " ".join(done.out.split())
    assert "Before the run" in said, done.err
    assert "(run here)" in said
    again = foretell("advise", *TRAINING, *site, "--store", "own.db", "--json", folder=folder).record
    assert [run["batch"] for run in again["runs"]["used"]] == [64]


ERRORS = [
    (("--site", "nowhere"), "no site named 'nowhere'. Known: ascend"),
    (("--layout", "qq"), "found 'qq'; expected ddp, "),
    (("--site", "nowhere", "--max-time", "5x", "--risk", "300%", "--evaluation", "x%"), "options: 4 mistakes"),
    (("--compare", "osc", "--site", "osc"), "--compare: found with --site; expected one of them"),
    (("--keep-batch", "--batch-per-gpu"), "--keep-batch: found with --batch-per-gpu; expected one of them"),
    (("--steps", "5"), "found 20 epochs and 5 steps; expected one of them"),
    (("--samples", "-3"), "--samples: found -3; expected a number above 0"),
    (("--compare", "gone.toml"), "no site file named 'gone.toml'"),
    (("--no-runs", "--then-run"), "--no-runs: found with --job or --then-run; expected one of them"),
    (("--prefer", "best"), "--prefer: found 'best'; expected auto, cheapest or fastest"),
    (("--evaluation", "x"), "--evaluation: found 'x'; expected a duration; write for example 90s, 10m, 1h30m or"),
    (("--evaluation", "x"), "02:30:00; or a share of an epoch's steps, such as 5%"),
    (("--run", "python 'train.py"), '--run: found "python \'train.py"; expected a command whose quotation marks'),
    (("--cpu", "H100"), "--cpu: found 'H100'; expected a model of a CPU: EPYC core; "),
    (("--cpu", "nothing"), "--cpu: found 'nothing'; expected a model of a CPU: EPYC core; "),
    (("--epochs", "nan"), "--epochs: found nan; expected a number above 0"),
    (("--epochs", "inf"), "--epochs: found inf; expected a number above 0"),
    (("--account", "AB 12", "--site", "nowhere"), "option 'account' of sbatch: 'AB 12' contains spaces"),
    (("--layout", "tp=2,tp=4"), "found tp twice in 'tp=2,tp=4'; expected each of them once"),
    (("--plot", "plot.pdf"), "its name must end in .png or .svg"),
]


def test_a_script_that_is_named_as_a_model_is_explained(folder: Path, foretell: Callable[..., Any]) -> None:
    done = foretell("advise", "train.py", "--site", "osc", folder=folder)
    assert done.code == 2
    assert "foretell advise -- python train.py" in " ".join(done.err.split())


@pytest.mark.parametrize(("options", "said"), ERRORS)
def test_mistakes_are_named_before_anything_is_read(
    folder: Path, foretell: Callable[..., Any], options: tuple[str, ...], said: str
) -> None:
    done = foretell("advise", *TRAINING, *options, folder=folder)
    assert done.code == 1
    assert said in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("net.py:build_model", "--input", "64,512"), "--epochs: found none; expected how long the training is"),
        ((), "Missing argument 'SOURCE'"),
        (("net.py:build_model", "--", "python", "train.py"), "either a model, or a command after --"),
        (("--optimizer", "adam", "--", "python", "train.py"), "the script sets it"),
        (("--input", "4,8", "--input", "4", "--", "python", "train.py"), "--input: found '4,8' '4'; expected none"),
        ((*TRAINING, "--site", "ascend", "--layout", "tp=7"), "GPUs: so many cannot be shared by tp=7"),
        ((*TRAINING, "--site", "ascend", "--max-cost", "0.001"), "the limits buy no training"),
    ],
)
def test_what_cannot_be_advised_says_why(
    folder: Path, foretell: Callable[..., Any], words: tuple[str, ...], said: str
) -> None:
    done = foretell("advise", *words, folder=folder)
    assert done.code != 0
    assert said in " ".join(done.err.split()), done.err
