"""The GPU that a recorded script finds is the device that it is predicted for."""

import os
import sys
from pathlib import Path

import pytest

from foretell.core.device_figures import parse_device_figures
from foretell.core.devices import get_device
from foretell.core.errors import SpecError
from foretell.steps.script_api import predict_script
from foretell.workloads.scripts.answered_gpu import AnsweredGpu, build_answered, load_answered, save_answered

CHOICE = """
import torch
print(torch.cuda.get_device_name())
capable = CONDITION
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.cuda.get_device_properties(0).total_memory // 2**30
with torch.autocast("cuda", dtype=torch.bfloat16 if capable else torch.float16):
    loss = model(torch.randn(batch, 64, device="cuda")).sum()
loss.backward()
optimizer.step()
"""
NATIVE = "torch.cuda.is_bf16_supported(including_emulation=False)"


class TestGpu:
    @pytest.mark.parametrize(
        ("name", "capability"),
        [
            ("K80", (3, 7)),
            ("P100", (6, 0)),
            ("P100-SXM2", (6, 0)),
            ("P4", (6, 1)),
            ("V100", (7, 0)),
            ("T4", (7, 5)),
            ("A100", (8, 0)),
            ("A10G", (8, 6)),
            ("L40S", (8, 9)),
            ("B200", (10, 0)),
            ("B300", (10, 3)),
            ("RTX5090", (12, 0)),
            ("MI300X", (9, 4)),
        ],
    )
    def test_capability(self, name: str, capability: tuple[int, int]) -> None:
        found = build_answered(get_device(name))
        assert (found.major, found.minor) == capability

    def test_figures_are_those_of_the_device(self) -> None:
        device = get_device("A100-40")
        found = build_answered(device)
        assert "A100" in found.name
        assert (found.memory_bytes, found.units) == (device.memory_bytes, 108)

    @pytest.mark.parametrize(
        ("figures", "major"), [("fp32=9e12", 6), ("fp16=90e12", 7), ("bf16=90e12", 8), ("fp8=9e14", 9)]
    )
    def test_capability_of_a_device_by_its_figures(self, figures: str, major: int) -> None:
        more = "" if figures.startswith("fp32") else ",fp32=9e12"
        device = parse_device_figures(f"{figures}{more},bandwidth=1e12,memory=24GB,units=80")
        assert build_answered(device).major == major

    def test_h100_instead_of_none_and_of_what_is_no_cuda_device(self) -> None:
        assert build_answered(None) == build_answered(get_device("Gaudi2")) == AnsweredGpu()
        h100 = build_answered(get_device("H100"))
        assert h100 == AnsweredGpu()

    def test_processes_of_a_command_find_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORETELL_SCRIPT_FOLDER", str(tmp_path))
        assert load_answered() == AnsweredGpu()
        save_answered(build_answered(get_device("T4")), tmp_path)
        assert load_answered() == build_answered(get_device("T4"))


@pytest.mark.slow
class TestChoices:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.delenv("PYTHONPATH", raising=False)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        return tmp_path

    @pytest.mark.parametrize(
        ("condition", "devices", "precision", "batch"),
        [
            (NATIVE, ["T4"], "fp16", 16),
            ("torch.cuda.get_device_capability() >= (8, 0)", ["V100-32"], "fp16", 32),
            (NATIVE, ["A100-40"], "bf16", 40),
            (NATIVE, ["A100-40", "H200"], "bf16", 80),
            ("'T4' in torch.cuda.get_device_name()", ["A10"], "fp16", 24),
        ],
    )
    def test_script_that_asks_its_gpu(
        self, folder: Path, condition: str, devices: list[str], precision: str, batch: int
    ) -> None:
        (folder / "train.py").write_text(CHOICE.replace("CONDITION", condition), encoding="utf-8")
        found = predict_script([sys.executable, "train.py"], devices=devices, folder=folder)
        assert len(found) == len(devices)
        assert {each.workload.settings["precision"] for each in found} == {precision}
        assert {each.workload.batch for each in found} == {batch}

    def test_bf16_that_pytorch_emulates_is_the_scripts_mistake(self, folder: Path) -> None:
        (folder / "train.py").write_text(
            CHOICE.replace("CONDITION", "torch.cuda.is_bf16_supported()"), encoding="utf-8"
        )
        with pytest.raises(SpecError, match=r"train.py: .*\n.*found bf16 on T4; expected fp32 or fp16"):
            predict_script([sys.executable, "train.py"], devices=["T4"], folder=folder)
