"""Commands as users write them, from their start to their end: nothing of them is left."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.workloads.recorded_scripts import FOLDER

from foretell.core.errors import MissingExtraError, NotFoundError, WorkloadError
from foretell.core.workload import StepPhase
from foretell.workloads.api import read_script

pytestmark = pytest.mark.slow

PYTHON = sys.executable
BIN = str(Path(sys.executable).parent)
TIMEOUT_S = 240.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def list_processes(mark: str) -> list[str]:
    """Processes with a word in their command."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if mark in words and process.pid != os.getpid() and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(words)
    return found


def write(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


LOOP = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = "model(torch.randn(3, 4)).sum().backward()\noptimizer.step()\n"


class TestCommands:
    def test_workers_and_their_folders_end_with_the_command(self, folder: Path) -> None:
        script = str(FOLDER / "image_classification.py")
        words = [PYTHON, script, "--workers", "2", "--batch-size", "5"]
        recorded = read_script(words, timeout_s=TIMEOUT_S)
        assert recorded.workload.batch == 5
        assert recorded.facts.batches == 20
        assert not list_processes(script)
        assert not recorded.created
        assert not list(folder.iterdir())

    def test_torchrun_with_one_process(self, folder: Path) -> None:
        script = str(FOLDER / "ddp_torchrun.py")
        recorded = read_script(["torchrun", "--nproc_per_node=1", script], timeout_s=TIMEOUT_S)
        assert recorded.facts.wrappers == ("DistributedDataParallel",)
        assert "module" not in "".join(recorded.workload.layers)
        assert not recorded.created
        assert not list_processes(script)
        assert not list(folder.iterdir())

    @pytest.mark.parametrize("wrapped", ["FSDP(model)", "fully_shard(model)"])
    def test_divided_model_is_recorded_as_a_whole(self, folder: Path, wrapped: str) -> None:
        lines = (
            "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard\n"
            "torch.distributed.init_process_group('nccl')\n"
            f"model = torch.nn.Sequential(torch.nn.Linear(64, 8)).cuda()\nmodel = {wrapped}\n"
            "optimizer = torch.optim.AdamW(model.parameters())\nmodel(torch.randn(4, 64).cuda()).sum().backward()\n"
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()\n"
        )
        write(folder, lines)
        recorded = read_script(["torchrun", "--nproc_per_node=1", "train.py"], timeout_s=TIMEOUT_S)
        assert recorded.workload.parameters == 64 * 8 + 8
        assert recorded.workload.layers[0] == "0"
        assert len(recorded.facts.wrappers) == 1

    def test_spawned_process_with_the_number_of_its_gpu(self, folder: Path) -> None:
        lines = (
            "import torch\nimport torch.multiprocessing as mp\n\n\ndef main(rank):\n"
            "    model = torch.nn.Linear(8, 2).to(rank)\n    optimizer = torch.optim.Adam(model.parameters())\n"
            "    x = torch.randn(4, 8).to(rank) + torch.zeros(8, device=rank)\n"
            "    assert x.device == torch.device(rank)\n"
            "    model(x).sum().backward()\n    optimizer.step()\n\n\n"
            "if __name__ == '__main__':\n    mp.spawn(main, nprocs=torch.cuda.device_count())\n"
        )
        write(folder, lines)
        recorded = read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)
        assert recorded.facts.gpu
        assert recorded.workload.parameters == 18

    def test_error_of_a_script_that_torchrun_started(self, folder: Path) -> None:
        write(folder, "import torch\n\ntorch.nn.Linear(3, 4)(torch.ones(2, 5))\n")
        with pytest.raises(WorkloadError, match=r"train.py:3 'torch.nn.Linear.*shapes cannot be multiplied"):
            read_script(["torchrun", "--nproc_per_node=1", "train.py"], timeout_s=TIMEOUT_S)

    def test_shell_does_not_continue_after_the_step(self, folder: Path) -> None:
        write(folder, LOOP + STEP)
        recorded = read_script(["sh", "-c", f"{PYTHON} train.py; touch next.txt"], timeout_s=TIMEOUT_S)
        assert recorded.workload.parameters == 10
        assert [path.name for path in folder.iterdir()] == ["train.py"]

    def test_accelerate_launch(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HOME", str(folder / "home"))
        script = str(FOLDER / "accelerate_loop.py")
        recorded = read_script(
            [PYTHON, "-m", "accelerate.commands.launch", "--num_processes=1", script], timeout_s=TIMEOUT_S
        )
        assert recorded.workload.settings["precision"] == "bf16"
        assert not list_processes(script)

    def test_package(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(FOLDER)
        before = set(FOLDER.rglob("*"))
        recorded = read_script([PYTHON, "-m", "forecast.train", "--window", "6"], timeout_s=TIMEOUT_S)
        assert recorded.workload.name == "forecast.train"
        assert recorded.workload.operators[0].inputs[0] == (8, 6, 3)
        assert set(FOLDER.rglob("*")) == before

    def test_shell_script_and_the_modules_of_the_user(self, folder: Path) -> None:
        """Another sitecustomize of the user's runs as well."""
        (folder / "own").mkdir()
        (folder / "own" / "sitecustomize.py").write_text("import builtins\nbuiltins.width = 4\n", encoding="utf-8")
        write(folder, LOOP.replace("Linear(4", "Linear(width") + STEP)
        text = f"export PYTHONPATH=$PYTHONPATH:{folder}/own\n{PYTHON} train.py\n"
        write(folder, text, "run.sh")
        assert read_script(["bash", "run.sh"], timeout_s=TIMEOUT_S).workload.parameters == 10

    def test_files_before_the_step_are_named_and_later_ones_not_written(self, folder: Path) -> None:
        (folder / "log.txt").write_text("a line\n", encoding="utf-8")
        early = (
            "import os\nos.makedirs('runs/1')\nopen('runs/1/config', 'w').write('x')\nopen('log.txt', 'a').write('x')\n"
        )
        saved = "torch.save(model.state_dict(), 'first.pt')\n"
        late = "open('late.txt', 'w').write('x')\ntry:\n    raise ValueError\nfinally:\n    open('never.txt', 'w')\n"
        write(folder, early + LOOP + saved + STEP + late)
        recorded = read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)
        assert set(recorded.created) == {str(folder / "runs"), str(folder / "first.pt")}
        assert recorded.changed == (str(folder / "log.txt"),)
        assert recorded.warnings[0].code == "script-wrote-files"
        assert not (folder / "late.txt").exists()
        assert not (folder / "never.txt").exists()

    def test_exit_handlers_run_and_end(self, folder: Path) -> None:
        handlers = (
            "import atexit, tempfile, time\nkept = tempfile.TemporaryDirectory(dir='.')\n"
            "atexit.register(time.sleep, 60)\natexit.register(lambda: open('left.txt', 'w').write('x'))\n"
        )
        write(folder, handlers + LOOP + STEP)
        begin = time.monotonic()
        recorded = read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)
        assert time.monotonic() - begin < 60
        assert str(folder / "left.txt") in recorded.created

    def test_large_model_needs_no_memory(self, folder: Path) -> None:
        """40 GB of parameters, as much of gradients and twice as much of states."""
        lines = (
            "import torch\nfrom torch import nn\n"
            "layers = [nn.Sequential(nn.Linear(8192, 32768), nn.GELU(), nn.Linear(32768, 8192)) for _ in range(19)]\n"
            "model = nn.Sequential(*layers).to('cuda')\n"
            "optimizer = torch.optim.AdamW(model.parameters())\n"
            "loss = model(torch.randn(64, 512, 8192, device='cuda')).square().mean()\nloss.backward()\n"
            "assert loss.item() == 0.0 and torch.isfinite(loss)\noptimizer.step()\n"
        )
        write(folder, lines)
        recorded = read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)
        assert recorded.workload.parameters == 19 * (2 * 8192 * 32768 + 32768 + 8192)
        products = 19 * 2 * 2 * 64 * 512 * 8192 * 32768
        assert recorded.workload.product_flops == pytest.approx(3 * products - products / 38, rel=0.02)

    def test_optimizer_that_waits_for_a_later_stage(self, folder: Path) -> None:
        """The step ends with the next update, and says that the other optimizer has none."""
        second = "other = torch.nn.Linear(2, 2)\nlater = torch.optim.Adam(other.parameters())\n"
        write(folder, LOOP + second + f"for _ in range(9):\n    {STEP.replace(chr(10), chr(10) + '    ').rstrip()}\n")
        recorded = read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)
        assert recorded.waiting == ("Adam",)
        phases = [each.phase for each in recorded.workload.operators]
        assert phases.count(StepPhase.UPDATE) == 1
        assert recorded.warnings[0].code == "script-incomplete-step"


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ([], "no command after '--'"),
            (["torchrun", "--nproc_per_node", "8", "train.py"], "asks for 8 processes.*--nproc_per_node=1"),
            (["torchrun", "--nproc-per-node=4", "train.py"], "asks for 4 processes"),
            ([PYTHON, "-m", "torch.distributed.run", "--nnodes=1:2", "train.py"], "asks for 2 processes"),
            (["accelerate", "launch", "--num_processes", "2", "train.py"], "asks for 2 processes"),
            ([PYTHON, "-I", "train.py"], "-I ignores PYTHONPATH"),
        ],
    )
    def test_before_the_start(self, folder: Path, words: list[str], expected: str) -> None:
        with pytest.raises(WorkloadError, match=expected):
            read_script(words, timeout_s=TIMEOUT_S)

    def test_unknown_program(self, folder: Path) -> None:
        with pytest.raises(NotFoundError, match="no program named 'pyhton'"):
            read_script(["pyhton", "train.py"], timeout_s=TIMEOUT_S)

    def test_unknown_script(self, folder: Path) -> None:
        with pytest.raises(NotFoundError, match=r"no script named 'nowhere.py'.*in the folder in which"):
            read_script([PYTHON, "nowhere.py"], timeout_s=TIMEOUT_S)

    def test_other_program(self, folder: Path) -> None:
        write(folder, "", "data.csv")
        with pytest.raises(WorkloadError, match=r"without starting Python.*\n  data.csv"):
            read_script(["ls"], timeout_s=TIMEOUT_S)

    def test_processes_that_the_environment_asks_for(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "8")
        write(folder, "import torch\ntorch.distributed.init_process_group('nccl')\n")
        with pytest.raises(WorkloadError, match="asks for 8 processes"):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_script_without_a_step(self, folder: Path) -> None:
        write(folder, LOOP + "print('accuracy 0.5')\nmodel.eval()(torch.randn(3, 4))\n")
        with pytest.raises(WorkloadError, match=r"without a training step: .*only evaluate.*\n  accuracy 0.5"):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_script_without_pytorch(self, folder: Path) -> None:
        write(folder, "print('hello')\n")
        with pytest.raises(WorkloadError, match="never imports PyTorch"):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_early_exit(self, folder: Path) -> None:
        write(folder, "import sys\nprint('usage: give --data')\nopen('half.txt', 'w')\nsys.exit(3)\n")
        with pytest.raises(
            WorkloadError, match=r"exit code 3 at train.py:4 'sys.exit.3.' .*wrote .*half.txt.*\n  usage: give --data"
        ):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_missing_file(self, folder: Path) -> None:
        write(folder, "def load():\n    return open('data/train.csv')\n\nload()\n")
        with pytest.raises(NotFoundError, match=r"no file named 'data/train.csv'. .*train.py:2 'return open"):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_error_of_the_script(self, folder: Path) -> None:
        write(folder, "import json\n\n\ndef build():\n    return json.loads('no')\n\n\nbuild()\n")
        with pytest.raises(WorkloadError, match=r"train.py:5 'return json.loads.*JSONDecodeError"):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_python_without_pytorch(self, folder: Path) -> None:
        write(folder, "import sys\nsys.path[:] = [p for p in sys.path if '-packages' not in p]\nimport torch\n")
        with pytest.raises(MissingExtraError, match=r"has no PyTorch. Activate the environment"):
            read_script([PYTHON, "train.py"], timeout_s=TIMEOUT_S)

    def test_timeout_names_the_line(self, folder: Path) -> None:
        write(folder, "import time\n\n\ndef download():\n    time.sleep(300)\n\n\ndownload()\n")
        with pytest.raises(WorkloadError, match=r"in 2 s and was ended. It was at train.py:5 'time.sleep.*--timeout"):
            read_script([PYTHON, "train.py"], timeout_s=2.0)
        assert not list_processes("train.py")

    def test_interrupt_ends_the_command(self, folder: Path) -> None:
        write(folder, "import time\ntime.sleep(300)\n", "sleeper.py")

        def interrupt(_state: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            read_script([PYTHON, "sleeper.py"], timeout_s=TIMEOUT_S, on_progress=interrupt)
        assert not list_processes("sleeper.py")

    @pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
    def test_signal_ends_the_command(self, folder: Path, sent: signal.Signals) -> None:
        write(folder, "import time\ntime.sleep(300)\n", "sleeper.py")
        before = signal.getsignal(sent)

        def interrupt(_state: str) -> None:
            os.kill(os.getpid(), sent)

        assert before is signal.SIG_DFL
        with pytest.raises(SystemExit):
            read_script([PYTHON, "sleeper.py"], timeout_s=TIMEOUT_S, on_progress=interrupt)
        assert not list_processes("sleeper.py")
        assert signal.getsignal(sent) is before
