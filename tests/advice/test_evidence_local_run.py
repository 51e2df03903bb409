"""A scaled-down run on this machine: real scripts, real steps, back from the store."""

import math
import sys
from pathlib import Path

import pytest

from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_local_run import make_next_run
from foretell.advice.evidence_runs import find_evidence
from foretell.advice.evidence_steps import RUN_NOISE
from foretell.core.errors import NotFoundError, WorkloadError
from foretell.measure.machine import find_cpu_model
from foretell.measure.other_load import OtherLoad
from foretell.workloads.scripts.timed_run import TimedSteps, time_script

IDENTITY = TrainingIdentity(source="train.py", parameters=10, flops=1e6, precision="fp32")
SCRIPT = """
import sys
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(float(sys.argv[1]))
        return torch.rand(4), torch.rand(1)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Slow(), batch_size=2):
    time.sleep(0.01)
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
open("finished.txt", "w").close()
"""
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_is_timed_stored_and_ended(folder: Path) -> None:
    made = make_next_run(
        IDENTITY, batch=2, command=[sys.executable, "train.py", "0"], steps=20, store=folder / "runs.db"
    )
    evidence = made.evidence
    assert (evidence.device, evidence.batch) == (find_cpu_model() or "cpu", 2)
    assert evidence.step_s is not None
    assert evidence.step_s >= 0.01  # it sleeps for so long
    assert evidence.cores is not None
    assert made.start_up_s is not None
    assert made.start_up_s > 0
    assert not (folder / "finished.txt").exists()
    (found,) = find_evidence(IDENTITY, store=folder / "runs.db")
    assert found.step_s == evidence.step_s
    assert found.place == evidence.place
    assert found.noise == pytest.approx(evidence.noise)


def test_waiting_for_data_is_no_part_of_a_step(folder: Path) -> None:
    timed = time_script([sys.executable, "train.py", "0.02"], steps=10)
    assert timed.waited_s >= 10 * 2 * 0.02
    assert timed.step_s >= 0.05
    assert timed.compute_s == pytest.approx((timed.seconds - timed.waited_s) / timed.steps)


def test_run_ends_after_its_seconds(folder: Path) -> None:
    timed = time_script([sys.executable, "train.py", "0"], steps=10_000, seconds=0.3)
    assert 1 <= timed.steps < 200
    assert timed.seconds >= 0.3


def test_script_that_ends_before_is_timed_up_to_its_end(folder: Path) -> None:
    text = SCRIPT.replace("return 400", "return 20")
    (folder / "short.py").write_text(text, encoding="utf-8")
    assert time_script([sys.executable, "short.py", "0"], steps=500).steps == 7  # of ten, three are not timed


def test_failures_are_explained(folder: Path) -> None:
    (folder / "bad.py").write_text("import torch\nraise ValueError('no data')\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match="no data"):
        make_next_run(IDENTITY, batch=2, command=[sys.executable, "bad.py"], store=folder / "runs.db")
    with pytest.raises(NotFoundError):
        make_next_run(IDENTITY, batch=2, command=[sys.executable, "none.py"], store=folder / "runs.db")
    assert not (folder / "runs.db").exists()


def test_model_without_a_script_is_profiled(folder: Path) -> None:
    code = "import torch\ndef make():\n    return torch.nn.Linear(4, 1)\n"
    (folder / "net.py").write_text(code, encoding="utf-8")
    identity = TrainingIdentity(source="net.py:make", parameters=5, flops=1.0, precision="fp32")
    made = make_next_run(
        identity, batch=8, source="net.py:make", inputs=["8,4"], store=folder / "runs.db", folder=folder / "kept"
    )
    (found,) = find_evidence(identity, store=folder / "runs.db")
    assert found.step_s == made.evidence.step_s
    assert found.place == made.evidence.place


def test_busy_machine_makes_a_run_less_certain(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    busy = OtherLoad(busy_cores=2.0, cores=2, threads=2)
    timed = TimedSteps(steps=4, seconds=2.0, start_up_s=0.0, device="cpu", threads=2, load=busy, created=("a.pt",))
    monkeypatch.setattr("foretell.advice.evidence_local_run.time_script", lambda *_, **__: timed)
    made = make_next_run(IDENTITY, batch=2, command=["python"], store=folder / "runs.db")
    assert made.evidence.noise == pytest.approx(math.hypot(RUN_NOISE, math.log(2)))
    assert made.warnings == (
        "Other processes used 2.0 of 2 cores while it was measured: times may be up to 100% too long.",
        "The script wrote a.pt.",
    )


def test_times_without_steps_are_refused() -> None:
    timed = TimedSteps(steps=4, seconds=2.0, waited_s=2.0, start_up_s=0.0, device="cpu", threads=1)
    assert timed.compute_s > 0
