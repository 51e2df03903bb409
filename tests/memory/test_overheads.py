"""What a step takes beyond its own blocks: workspaces of convolutions, the context of CUDA, and the interval."""

from dataclasses import replace

import pytest
from torch import nn

from foretell.core.devices import get_device
from foretell.core.memory import MemoryTrace
from foretell.memory.batch_sizes import BatchTraces
from foretell.memory.forecast import forecast
from foretell.memory.overheads import (
    CONVOLUTIONAL,
    GROUPS,
    OTHER,
    LearnedOverheads,
    find_workspaces,
    load_overheads,
    predict_overheads,
)
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec

BATCH, CHANNELS, SIZE, FILTERS = 4, 8, 16, 12
FLOAT = 4  # bytes
IMAGES, RESULTS = BATCH * CHANNELS * SIZE**2, BATCH * FILTERS * SIZE**2


def capture(layer: nn.Module, channels: int = CHANNELS, batch: int = BATCH) -> MemoryTrace:
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(10))
    model[2] = nn.Linear(count_features(layer, channels), 10)
    return capture_memory(model, [InputSpec(shape=(batch, channels, SIZE, SIZE))])


def count_features(layer: nn.Module, channels: int) -> int:
    import torch

    return int(layer(torch.zeros(1, channels, SIZE, SIZE)).numel())


class TestWorkspaces:
    def test_a_convolution_copies_images_filters_and_results(self) -> None:
        needs = find_workspaces(capture(nn.Conv2d(CHANNELS, FILTERS, 3, padding=1)))
        filters = FILTERS * CHANNELS * 9
        assert needs.layout_bytes == FLOAT * (IMAGES + RESULTS + filters)
        assert needs.winograd_bytes == FLOAT * (2.25 * (IMAGES + RESULTS) + 4 * filters)
        assert needs.group == CONVOLUTIONAL

    @pytest.mark.parametrize(
        ("layer", "group"),
        [
            (nn.Conv2d(CHANNELS, FILTERS, 1), CONVOLUTIONAL),
            (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), OTHER),
            (nn.ReLU(), OTHER),
        ],
        ids=["points", "depthwise", "no convolution"],
    )
    def test_others_need_none(self, layer: nn.Module, group: str) -> None:
        needs = find_workspaces(capture(layer))
        assert (needs.layout_bytes, needs.winograd_bytes, needs.group) == (0, 0, group)

    def test_cutting_an_image_into_patches_needs_none(self) -> None:
        assert find_workspaces(capture(nn.Conv2d(3, FILTERS, 4, stride=4), channels=3)).group == OTHER

    def test_strides_exclude_winograd(self) -> None:
        needs = find_workspaces(capture(nn.Conv2d(CHANNELS, FILTERS, 3, stride=2, padding=1)))
        assert needs.winograd_bytes == 0 < needs.layout_bytes

    def test_it_grows_with_a_derived_batch_as_with_a_captured_one(self) -> None:
        layer = nn.Conv2d(CHANNELS, FILTERS, 3, padding=1)
        traces = BatchTraces(capture(layer, batch=2), capture(layer, batch=5))
        assert find_workspaces(traces.resize(11)) == find_workspaces(capture(layer, batch=11))


class TestForecast:
    @pytest.fixture
    def trace(self) -> MemoryTrace:
        return capture(nn.Conv2d(CHANNELS, FILTERS, 3, padding=1))

    def test_the_need_is_the_sum_of_its_parts(self, trace: MemoryTrace) -> None:
        usage = measure_usage(trace)
        found = forecast(usage, get_device("A100-40"), level=0.9)
        overheads = predict_overheads(trace, get_device("A100-40"))
        assert found.workspace_bytes == overheads.workspace_bytes > 0
        assert found.needed.value == usage.reserved_bytes + found.workspace_bytes + found.context_bytes

    def test_a_context_that_was_not_measured_is_less_certain(self, trace: MemoryTrace) -> None:
        known = predict_overheads(trace, get_device("A100-40")).context
        other = predict_overheads(trace, get_device("H100")).context
        assert known.low == known.value == known.high
        assert other.low < other.value < other.high == known.value
        assert predict_overheads(trace).context == other

    def test_quantiles_rise_around_the_value(self, trace: MemoryTrace) -> None:
        found = forecast(measure_usage(trace), get_device("H100"), level=0.9)
        assert list(found.quantiles) == sorted(found.quantiles)
        assert found.needed.low < found.needed.value < found.needed.high
        assert found.find_risk(int(found.needed.high) + 1) <= 0.06
        assert found.find_risk(int(found.needed.low) - 1) >= 0.94

    def test_the_lowest_is_at_least_what_is_allocated(self, trace: MemoryTrace) -> None:
        usage = replace(measure_usage(trace), allocated_bytes=2**40)
        assert min(forecast(usage, None, level=0.9).quantiles) == 2**40


class TestWeights:
    def test_what_ships_bounds_the_physical_shares(self) -> None:
        learned = load_overheads()
        assert 0.4e9 < learned.context_bytes < 2.5e9
        assert 0 <= learned.layout < 4
        assert 0 <= learned.winograd < 2
        assert set(learned.spreads) == set(GROUPS)

    def test_they_survive_a_file(self) -> None:
        learned = load_overheads()
        record, arrays = learned.to_state()
        assert LearnedOverheads.from_state(record, arrays) == learned

    def test_quantiles_that_fall_are_refused(self) -> None:
        record, arrays = load_overheads().to_state()
        record["spreads"][OTHER] = record["spreads"][OTHER][::-1]
        with pytest.raises(ValueError, match=r"overheads|rise|number|quantile"):
            LearnedOverheads.from_state(record, arrays)
