"""What options change in a captured step."""

import pytest
from tests.workloads import models
from torch import nn

from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.capture import capture
from foretell.workloads.step_options import StepOptions, parse_input


def read(model: nn.Module, text: str, **options: object) -> Workload:
    return capture(model, [parse_input(text)], options=StepOptions(**options))  # type: ignore[arg-type]


def find(workload: Workload, kind: str, phase: StepPhase = StepPhase.FORWARD) -> list[Operator]:
    return [each for each in workload.operators if each.kind == kind and each.phase is phase]


class TestChannelsLast:
    def test_the_first_convolution_converts_the_images_and_no_other(self) -> None:
        plain, last = (read(models.Images(), "4,3,16,16", channels_last=each) for each in (False, True))
        (copy,) = find(last, "clone")
        assert (copy.output, copy.bytes_moved) == ((4, 3, 16, 16), 2 * 4 * 4 * 3 * 16 * 16)
        assert len(last.operators) == len(plain.operators) + 1
        assert last.operators[0] is copy
        assert last.sources[1] == (0,)
        assert (last.settings["channels_last"], plain.settings["channels_last"]) == ("yes", "no")
        assert last.flops == plain.flops

    def test_gradients_stay_where_they_are_made(self) -> None:
        plain, last = (read(models.Images(), "4,3,16,16", channels_last=each) for each in (False, True))
        assert [each.ready + 1 for each in plain.gradients] == [each.ready for each in last.gradients]

    def test_convolutions_after_a_flat_part_convert_again(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.middle, self.last = nn.Conv2d(3, 4, 1), nn.Linear(64, 64), nn.Conv2d(4, 4, 1)

            def forward(self, x):  # type: ignore[no-untyped-def]
                x = self.middle(self.first(x).flatten(2))
                return self.last(x.unflatten(2, (8, 8)))

        assert len(find(read(Twice(), "2,3,8,8", channels_last=True, mode="inference"), "clone")) == 2

    @pytest.mark.parametrize(
        ("layer", "expected"),
        [
            (nn.Conv2d(96, 128, 3), "yes"),
            (nn.Conv2d(96, 96, 3, groups=96), "yes"),
            (nn.Conv2d(96, 96, 3, groups=4), "no"),
            (nn.Conv2d(32, 32, 3), "no"),
            (nn.Conv2d(128, 64, 3), "no"),
            (nn.Conv2d(128, 64, 1), "yes"),
        ],
    )
    def test_a_compiler_chooses_the_layout_itself(self, layer: nn.Conv2d, expected: str) -> None:
        model = nn.Sequential(layer, nn.ReLU())
        text = f"2,{layer.in_channels},8,8"
        compiled = read(model, text, compile=True, mode="inference")
        assert compiled.settings["channels_last"] == expected
        assert read(model, text, mode="inference").settings["channels_last"] == "no"


class TestEightBits:
    def test_linear_layers_are_scaled_and_move_half_as_much(self) -> None:
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        half, eight = read(model, "32,64", precision="bf16"), read(model, "32,64", precision="fp8")
        forward = find(eight, "scale_to_fp8")
        assert [each.output for each in forward] == [(32, 64), (128, 64)]  # input and weight of the first layer
        assert [each.bytes_moved for each in forward] == [5 * 32 * 64, 5 * 128 * 64]
        (backward,) = find(eight, "scale_to_fp8", StepPhase.BACKWARD)
        assert backward.bytes_moved == 5 * 32 * 128 + 2 * (32 * 64 + 32 * 128)
        first, second = find(eight, "linear")
        assert first.bytes_moved == 32 * 64 + 128 * 64 + 2 * (32 * 128 + 128)
        assert first.bytes_moved < find(half, "linear")[0].bytes_moved
        assert (first.get("fp8", 1), second.get("fp8", 1)) == (1, 0)  # 10 is no multiple of 16
        assert eight.product_flops == half.product_flops

    def test_all_else_is_as_with_bf16(self) -> None:
        model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 16))
        half, eight = read(model, "32,64", precision="bf16"), read(model, "32,64", precision="fp8")
        kinds = [each.kind for each in eight.operators if each.kind != "scale_to_fp8"]
        assert kinds == [each.kind for each in half.operators]
        assert all(each < place for place, own in enumerate(eight.sources) for each in own)


def test_options_are_applied_together() -> None:
    workload = read(models.Images(), "4,3,16,16", channels_last=True, precision="fp8", compile=True, optimizer="adamw")
    assert workload.settings["compile"] == "yes"
    assert workload.operators[-1].kind == "_fused_adamw_"
    assert workload.product_flops == pytest.approx(read(models.Images(), "4,3,16,16").product_flops)
