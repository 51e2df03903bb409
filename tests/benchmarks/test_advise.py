"""``python -m benchmarks advise``: rows of published tables, picks among choices, and labels of the user's."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.advise import deeplearning_examples, flagperf_jobs, mlperf_jobs
from benchmarks.advise.choices import judge_choices
from benchmarks.advise.command import add_arguments, choose_parts, run_command
from benchmarks.advise.label_rows import build_row as build_label
from benchmarks.advise.label_rows import compare_labels
from benchmarks.advise.published import Compared, ComparedJob, Published, compare, compare_job
from benchmarks.advise.recipes import RECIPES
from benchmarks.advise.results import judge
from benchmarks.advise.scaling import judge_scaling
from benchmarks.advise.summary import summarize
from benchmarks.advise.table import render_details

from foretell.core.devices import get_device

_HEAD = "device,gpus,model,input,precision,rate,seconds,total_s,samples,epochs,task"
_MODEL = """
from torch import nn


def build() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 32 * 32, 10))
"""


def describe_flagperf(**changes: Any) -> SimpleNamespace:
    row = {
        "model": "resnet50-pytorch",
        "device": "A100",
        "nodes": 2,
        "gpus_per_node": 8,
        "precision": "fp32",
        "overrides": "bs=256,lr=0.8",
        "p_core": 11874.0,
        "p_train": 11085.0,
        "tokens_per_gpu_s": "",
        "other": "",
        "default_batch": 32.0,
        "line": 7,
    }
    return SimpleNamespace(**{**row, **changes})


def test_a_row_of_flagperf_has_the_batch_of_a_gpu_and_the_rate_without_loading() -> None:
    row = flagperf_jobs.build_row(describe_flagperf())
    assert (row.gpus, row.batch, row.precision, row.layout) == (16, 256, "tf32", "ddp")
    assert row.step_s == pytest.approx(16 * 256 / 11874)
    assert flagperf_jobs.build_row(describe_flagperf(overrides="/")).batch == 32


def test_a_row_of_flagperf_with_tokens_has_its_layout_and_batches() -> None:
    row = flagperf_jobs.build_row(
        describe_flagperf(
            model="llama3_8B-megatron",
            nodes=1,
            overrides="/",
            tokens_per_gpu_s="3698.7",
            other='{"parallel": "PP2DP4TP1"}',
        )
    )
    assert row.layout == "no-overlap,tp=1,pp=2,zero1,micro=128"
    assert (row.batch, row.accumulation, row.copies) == (1, 128, 4)
    assert row.rate * 8192 == pytest.approx(8 * 3698.7)
    assert row.step_s == pytest.approx(512 * 8192 / (8 * 3698.7))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"model": "mask_rcnn-pytorch"}, "images of varying sizes"),
        ({"model": "something-else"}, "unknown model"),
        ({"device": "*"}, "unnamed device"),
        ({"model": "llama3_8B-megatron", "tokens_per_gpu_s": "/"}, "without a rate"),
    ],
)
def test_rows_that_cannot_be_rebuilt_have_a_reason(changes: dict[str, Any], reason: str) -> None:
    assert flagperf_jobs.find_obstacle(describe_flagperf(**changes)) == reason


def describe_example(**changes: Any) -> SimpleNamespace:
    row = {
        "path": "PyTorch/LanguageModeling/BERT",
        "platform": "Pre-training NVIDIA DGX A100 (8x A100 80GB) Multi-node Scaling",
        "gpus": "8.0",
        "batch": "126 and 256",
        "seq": "128",
        "precision": "mixed",
        "value": 35774.0,
        "table": 41,
        "row": 3,
        "line": 9,
    }
    return SimpleNamespace(**{**row, **changes})


def test_a_row_of_several_nodes_divides_the_batch_of_the_step() -> None:
    row = deeplearning_examples.build_row(describe_example())
    assert isinstance(row, Published)
    assert (row.gpus, row.batch, row.accumulation, row.precision) == (64, 256, 4, "fp16")
    assert row.gpus * row.batch * row.accumulation == 65536
    single = deeplearning_examples.build_row(describe_example(precision="TF32"))
    assert isinstance(single, Published)
    assert (single.batch, single.accumulation) == (128, 8)


def test_a_board_with_more_power_is_a_device_of_its_own() -> None:
    row = deeplearning_examples.build_row(
        describe_example(
            path="PyTorch/LanguageModeling/Transformer-XL",
            platform="Training performance: 8x NVIDIA DGX-2H (16x V100 32GB)",
            gpus="",
            batch="4",
            table=52,
        )
    )
    assert isinstance(row, Published)
    assert (row.gpus, row.gpus_per_node, row.accumulation) == (128, 16, 1)
    assert row.device.power_w > get_device("V100-32").power_w


def test_examples_in_other_frameworks_and_of_varying_lengths_are_left_out() -> None:
    assert deeplearning_examples.build_row(describe_example(path="TensorFlow/Translation/GNMT")) == "another framework"
    assert deeplearning_examples.build_row(describe_example(seq="512")) == "sequences of varying lengths"


def describe_mlperf(**changes: Any) -> SimpleNamespace:
    row = {"benchmark": "ssd", "acc": "NVIDIA H100-SXM5-80GB", "n": 8.0, "gbs": 256.0, "tp": 286.0}
    return SimpleNamespace(**{**row, **changes})


def test_throughputs_of_mlperf_are_those_of_all_gpus_in_examples() -> None:
    assert mlperf_jobs.build_row(describe_mlperf()).rate == pytest.approx(8 * 286)
    assert mlperf_jobs.build_row(describe_mlperf(benchmark="resnet", tp=56000.0)).rate == pytest.approx(56000)
    gpt = mlperf_jobs.build_row(describe_mlperf(benchmark="gpt3", n=512.0, gbs=2048.0, tp=374888.6))
    assert gpt.rate == pytest.approx(374888.6 / 2048)
    assert gpt.layout == "tp=4,pp=8,zero1,sp,micro=64,interleave=6"
    assert gpt.batch * gpt.accumulation * gpt.copies == 2048


def test_rows_of_mlperf_that_cannot_be_rebuilt_have_a_reason() -> None:
    assert mlperf_jobs.find_obstacle(describe_mlperf()) == ""
    assert mlperf_jobs.find_obstacle(describe_mlperf(tp=float("nan"))) == "without a throughput"
    assert mlperf_jobs.find_obstacle(describe_mlperf(gbs=100.0)).startswith("examples divided unequally")
    assert mlperf_jobs.find_obstacle(describe_mlperf(benchmark="gpt3", n=100.0)) == "layouts not stated"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """A small network on one to eight GPUs, whose rates are in proportion to them."""
    (tmp_path / "net.py").write_text(_MODEL, encoding="utf-8")
    model = f"{tmp_path / 'net.py'}:build"
    rows = [f'A100-40,{gpus},{model},"32,3,32,32",fp32,{1000 * gpus},,,,,net' for gpus in (1, 2, 8)]
    rows += [f'A100-40,1,{model},"32,3,32,32",fp32,,,600,50000,2,net']
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([_HEAD, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def compared(labels: Path) -> tuple[list[Compared], list[ComparedJob]]:
    return compare_labels(labels)


def test_labels_are_predicted_as_steps_and_as_whole_jobs(compared: tuple[list[Compared], list[ComparedJob]]) -> None:
    steps, jobs = compared
    assert [each.row.gpus for each in steps] == [1, 2, 8]
    assert all(each.ratio == pytest.approx(each.row.rate / each.rate) for each in steps)
    assert len(jobs) == 1
    assert jobs[0].total.value > 2 * 50000 / 32 * jobs[0].step.step.value
    assert jobs[0].waiting == 0


def test_summaries_have_all_and_each_part(compared: tuple[list[Compared], list[ComparedJob]]) -> None:
    results = summarize(*compared)
    assert (results[0].part, results[0].cases) == ("all", 4)
    assert {"one GPU", "one node", "single precision"} <= {each.group for each in results}
    lines = render_details(*compared).splitlines()
    assert len({line.count("\t") for line in lines}) == 1
    assert judge("nothing", "none", []) == []


def test_the_pick_is_judged_by_what_was_measured(compared: tuple[list[Compared], list[ComparedJob]]) -> None:
    results = {each.group: each for each in judge_choices(compared[0])}
    assert results["most for a GPU hour"].cases == 1
    assert results["most for a GPU hour"].good == 100  # equally good choices
    assert results["most for a GPU hour"].chance == 100


def test_rates_of_several_gpus_are_compared_with_that_of_one(labels: Path) -> None:
    text = labels.read_text(encoding="utf-8").replace(",8000,", ",6000,")  # eight GPUs are six times as fast
    labels.write_text(text, encoding="utf-8")
    results = {each.group: each for each in judge_scaling(compare_labels(labels)[0])}
    assert (results["2 GPUs"].published, results["8 GPUs"].published) == pytest.approx((100, 75))
    assert 0 < results["8 GPUs"].predicted <= 100


def test_a_wrong_pick_counts_by_how_much_worse_it_is(labels: Path) -> None:
    text = labels.read_text(encoding="utf-8").replace(",1000,", ",3000,")  # one GPU is three times as fast
    labels.write_text(text, encoding="utf-8")
    steps, _ = compare_labels(labels)
    slow = [each for each in steps if each.row.gpus > 1]
    assert judge_choices(steps)[0].chance == pytest.approx(100 / 3)
    assert max(each.rate / each.row.gpus for each in slow) <= next(each.rate for each in steps if each.row.gpus == 1)


@pytest.mark.parametrize(
    ("head", "row", "message"),
    [
        ("device,gpus,model,input", 'A100-40,1,net.py,"1,3"', "no column 'precision'"),
        (_HEAD, 'A100-40,1,net.py,"1,3",fp32,,,,,,', "line 2: nothing measured"),
        (_HEAD, 'A100-40,1,net.py,"1,3",fp32,,,60,,,', "line 2: total_s without samples"),
    ],
)
def test_labels_that_say_too_little_are_refused(tmp_path: Path, head: str, row: str, message: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{head}\n{row}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        compare_labels(path)


def test_a_label_has_its_rate_from_what_was_measured() -> None:
    record = {"device": "H100", "gpus": "4", "model": "net.py", "input": "16,3,32,32", "precision": "bf16"}
    assert build_label({**record, "rate": "800"}).rate == 800
    assert build_label({**record, "seconds": "0.1"}).rate == pytest.approx(640)
    assert build_label({**record, "total_s": "100", "samples": "5000", "epochs": "2"}).rate == pytest.approx(100)


def test_a_job_adds_its_start_and_its_evaluation_to_its_steps(labels: Path) -> None:
    step = compare_labels(labels)[0][0]
    plain = compare_job(step, name="net", samples=100_000, measured_s=60)
    longer = compare_job(step, name="net", samples=100_000, measured_s=60, evaluation_share=0.1)
    steps_s = 3125 * step.step.value
    assert longer.total.value - plain.total.value == pytest.approx(0.1 * steps_s)
    assert plain.total.value > steps_s


def test_parts_are_chosen_by_name() -> None:
    assert choose_parts(None, labels=True) == []
    assert choose_parts("flagperf,jobs", labels=False) == ["flagperf", "jobs"]
    with pytest.raises(ValueError, match="no part named 'other'"):
        choose_parts("other", labels=False)
    with pytest.raises(ValueError, match="'recipes' has a table of its own"):
        choose_parts("flagperf,recipes", labels=False)


def test_the_command_prints_labels(labels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    parser.add_argument("--json", action="store_true")
    add_arguments(parser)
    arguments: Namespace = parser.parse_args(["--labels", str(labels)])
    run_command(arguments)
    out = capsys.readouterr().out
    assert "steps and jobs" in out
    assert "most for a GPU hour" in out


def test_recipes_say_where_their_figures_are_from() -> None:
    assert len(RECIPES) >= 10
    assert all(recipe.source and recipe.said and recipe.differs for recipe in RECIPES)
    assert all("not compared" in recipe.differs for recipe in RECIPES if recipe.published is None)
    row = next(recipe for recipe in RECIPES if recipe.per_example > 1 and recipe.published).build()
    assert row.rate < 1e6


def test_layouts_that_do_not_divide_are_said_and_left_out(labels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"device": "A100-40", "gpus": "2", "model": f"{labels.parent / 'net.py'}:build", "input": "4,3,32,32"}
    row = build_label({**record, "precision": "fp32", "rate": "100", "layout": "cp=2"})
    assert compare([row]) == []
    assert "1 rows" in capsys.readouterr().err
