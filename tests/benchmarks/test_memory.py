"""``python -m benchmarks memory``: what is learned from, what training loops add, and how it is called."""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.memory.command import add_arguments, choose_parts, run_command
from benchmarks.memory.models import PRIME, derive_batches
from benchmarks.memory.overhead_fits import PeakCase, fit_overheads, judge_left_out, split_families
from benchmarks.memory.results import Result, measure_errors
from benchmarks.memory.timm_ladder import LADDER, find_steps, fits
from benchmarks.memory.training_loops import decay_weights, keep_gradients, load_ahead
from torch import nn

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.batch_sizes import BatchTraces
from foretell.memory.overheads import WorkspaceNeeds
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec

MIB, GIB = 2**20, 2**30
CONTEXT, LAYOUT, WINOGRAD = 1700 * MIB, 1.5, 0.25


def capture(batch: int, width: int = 256) -> MemoryTrace:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, width),
        nn.Linear(width, 4 * width), nn.Linear(4 * width, 10),
    )  # fmt: skip
    return capture_memory(net, [InputSpec(shape=(batch, 3, 8, 8))])


def build_cases(noise: float) -> list[PeakCase]:
    random = np.random.default_rng(0)
    cases = []
    for number in range(400):
        reserved, layout = (float(value) for value in random.uniform(100, 20_000, 2) * MIB)
        winograd = float(random.uniform(0, 40_000)) * MIB if number % 3 else 0.0
        layout *= number % 2
        needs = WorkspaceNeeds(layout_bytes=layout, winograd_bytes=winograd if layout else 0.0, convolutions=layout > 0)
        peak = reserved + CONTEXT + LAYOUT * needs.layout_bytes + WINOGRAD * needs.winograd_bytes
        peak *= float(np.exp(random.normal(0, noise)))
        case = PeakCase(
            model=f"m{number}",
            family=f"f{number % 40}",
            batch=8,
            measured_bytes=peak,
            reserved_bytes=reserved,
            needs=needs,
        )
        cases.append(case)
    return cases


class TestFits:
    def test_known_shares_are_found(self) -> None:
        found = fit_overheads(build_cases(0.0), "A100-40")
        assert found.context_bytes == pytest.approx(CONTEXT, rel=0.01)
        assert found.layout == pytest.approx(LAYOUT, rel=0.01)
        assert found.winograd == pytest.approx(WINOGRAD, rel=0.01)

    def test_bounds_hold_for_families_that_were_left_out(self) -> None:
        cases = build_cases(0.1)
        predicted, upper = judge_left_out(cases, "A100-40")
        figures = measure_errors(predicted, [each.measured_bytes for each in cases], upper)
        assert figures["median"] < 10
        assert figures["too low"] < 7

    def test_families_are_never_split(self) -> None:
        families = [each.family for each in build_cases(0.0)]
        held = list(split_families(families))
        assert np.sum(held, axis=0).tolist() == [1] * len(families)
        for mask in held:
            assert not set(np.array(families)[mask]) & set(np.array(families)[~mask])


class TestTrainingLoops:
    @pytest.fixture
    def trace(self) -> MemoryTrace:
        return capture(4, width=2048)

    def test_weight_decay_copies_gradients_in_the_update(self, trace: MemoryTrace) -> None:
        plain, decayed = measure_usage(trace), measure_usage(decay_weights(trace))
        gradients = trace.measure(MemoryKind.GRADIENTS) // 2  # of one of two steps
        assert gradients > 40 * MIB
        assert 0.5 * gradients < decayed.allocated_bytes - plain.allocated_bytes <= 1.01 * gradients

    def test_kept_gradients_stay_for_all_steps(self, trace: MemoryTrace) -> None:
        kept = keep_gradients(trace)
        gradients = trace.kinds == MemoryKind.GRADIENTS
        allocated = kept.events[kept.events > 0] - 1
        freed = -kept.events[kept.events < 0] - 1
        first = kept.events[: kept.second]
        assert not set(np.flatnonzero(gradients)) & set(-first[first < 0] - 1)
        assert gradients[allocated].sum() == 2 * gradients[freed].sum() > 0
        assert measure_usage(kept).allocated_bytes >= measure_usage(trace).allocated_bytes

    def test_a_loader_holds_two_batches_and_bytes_of_one(self) -> None:
        trace = capture(64)
        ahead = load_ahead(trace)
        added = np.arange(len(trace.sizes), len(ahead.sizes))
        assert ahead.sizes[added].sum() == 2.25 * 64 * 3 * 8 * 8 * 4
        assert not set(added + 1) & set(np.abs(ahead.events))  # from the beginning to the end

    def test_a_batch_is_derived_from_one_capture_as_from_its_own(self) -> None:
        derived, own = derive_batches(capture(PRIME)).resize(32), capture(32)
        assert derived.sizes.tolist() == own.sizes.tolist()


class TestLadder:
    def test_a_batch_fits_from_what_it_reserves_on(self) -> None:
        traces = derive_batches(capture(PRIME, width=1024))
        usage = measure_usage(keep_gradients(traces.resize(256)))
        assert fits(traces, 256, usage.reserved_bytes / GIB)
        assert not fits(traces, 256, 0.9 * usage.allocated_bytes / GIB)

    def test_less_memory_leads_further_down(self) -> None:
        traces = derive_batches(capture(PRIME, width=1024))
        large = 200_000
        reserved = measure_usage(keep_gradients(traces.resize(large))).reserved_bytes
        unit = int(22 * GIB / 64 / (reserved / large))  # so that 64 of them fill 22 GiB
        scaled = BatchTraces(*(replace(traces.resize(unit * batch), batch=batch) for batch in (1, 4)))
        steps = find_steps(scaled)
        assert list(steps) == sorted(steps, reverse=True)
        assert {LADDER[step] for step in steps} == {48, 64}


class TestCommand:
    def test_parts_that_do_not_exist_are_refused(self) -> None:
        with pytest.raises(ValueError, match="no part named 'peaks'; known parts: timm, ladder"):
            choose_parts("timm,peaks", labels=False)

    def test_labels_take_the_place_of_the_parts(self) -> None:
        assert choose_parts(None, labels=True) == []
        assert "timm" in choose_parts(None, labels=False)

    def test_a_file_without_a_column_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.csv"
        path.write_text('model,input\ntorchvision:resnet18,"8,3,224,224"\n', encoding="utf-8")
        with pytest.raises(SystemExit, match="no column 'precision'"):
            run(["--labels", str(path)])

    def test_own_peaks_are_compared(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "net.py").write_text("from torch import nn\n\ndef build():\n    return nn.Linear(64, 8)\n")
        head = "model,input,precision,optimizer,mode,batch,device,bytes,what"
        row = f'{tmp_path / "net.py"}:build,"4,64",fp32,sgd,training,4,A100-40,1000000,device'
        path = tmp_path / "mine.csv"
        path.write_text(f"{head}\n{row}\n", encoding="utf-8")
        run(["--labels", str(path)])
        assert "too low 0.0" in capsys.readouterr().out

    def test_goals_are_at_most_or_at_least(self) -> None:
        figures = {"median": 5.0, "right step": 85.0}
        found = Result(what="x", group="all", cases=1, figures=figures, wanted={"median": 4.0, "right step": 80.0})
        assert found.list_missed() == ["median"]


def run(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    add_arguments(parser)
    run_command(parser.parse_args(words))
