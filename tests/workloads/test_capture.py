"""A training step read from code has the operators that run, in their order."""

from collections import Counter

import pytest
import torch
from tests.workloads import models
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from foretell.core.errors import SpecError, WorkloadError
from foretell.core.workload import StepPhase, Workload
from foretell.workloads import hybrid_tensors
from foretell.workloads.capture import capture
from foretell.workloads.step_options import StepOptions, parse_input


def read(model: nn.Module, *inputs: str, **options: object) -> Workload:
    return capture(model, [parse_input(text) for text in inputs], options=StepOptions(**options))  # type: ignore[arg-type]


def kinds(workload: Workload, phase: StepPhase) -> list[str]:
    return [each.kind for each in workload.operators if each.phase is phase]


class TestOrder:
    def test_forward_is_what_the_code_calls(self) -> None:
        workload = read(models.Perceptron(), "4,16")
        layer = ["linear", "relu", "__add__"]
        assert kinds(workload, StepPhase.FORWARD) == [*layer, *layer, "linear", "cross_entropy"]

    def test_backward_is_forward_reversed_with_gradients_added_where_paths_meet(self) -> None:
        workload = read(models.Perceptron(), "4,16")
        second, first = ["relu", "linear", "accumulate"], ["relu", "linear"]  # the input needs no gradient
        assert kinds(workload, StepPhase.BACKWARD) == ["cross_entropy", "linear", *second, *first]

    def test_update_is_three_calls_for_each_parameter_in_its_order(self) -> None:
        model = models.Perceptron()
        workload = read(model, "4,16", implementation="for-loop")
        updates = [each for each in workload.operators if each.phase is StepPhase.UPDATE]
        assert [each.kind for each in updates] == ["mul_", "add_", "add_"] * 6
        assert [each.output for each in updates[::3]] == [tuple(each.shape) for each in model.parameters()]

    def test_layers_are_the_modules_that_call(self) -> None:
        workload = read(models.Images(blocks=2), "4,3,16,16", implementation="for-loop")
        named = dict(zip(workload.layers, workload.operators, strict=True))
        assert {"stem", "blocks.0.conv", "blocks.1.norm", "head"} <= named.keys()
        pairs = {(each.kind, layer) for each, layer in zip(workload.operators, workload.layers, strict=True)}
        assert {("conv2d", "stem"), ("relu", "blocks.0"), ("mean", ""), ("mul_", "head")} <= pairs

    def test_equal_operators_are_one_object(self) -> None:
        workload = read(models.Images(blocks=4), "4,3,16,16")
        assert len({id(each) for each in workload.operators}) == len(set(workload.operators)) < len(workload.operators)

    def test_views_are_counted_but_are_not_operators(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
        workload = read(model, "2,3,8,8")
        assert kinds(workload, StepPhase.FORWARD) == ["conv2d", "linear", "cross_entropy"]
        assert workload.views[:2] == (0, 2)  # flatten, and the weight turned round

    def test_capturing_twice_gives_the_same(self) -> None:
        model = models.Images()
        assert read(model, "4,3,16,16") == read(model, "4,3,16,16")


class TestOperators:
    def test_a_convolution_has_its_shapes_attributes_and_parameters(self) -> None:
        first = read(models.Images(), "4,3,16,16").operators[0]
        assert (first.inputs, first.output) == (((4, 3, 16, 16), (8, 3, 3, 3), (8,)), (4, 8, 8, 8))
        assert dict(first.attributes) == {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
        assert (first.parameters, first.dtype) == (8 * 27 + 8, "float32")

    def test_only_the_first_layers_input_gets_no_gradient(self) -> None:
        operators = read(models.Images(blocks=1), "4,3,16,16").operators
        backward = [each for each in operators if each.phase is StepPhase.BACKWARD and each.kind == "conv2d"]
        assert [each.input_gradient for each in backward] == [True, False]
        forward = [each for each in operators if each.phase is StepPhase.FORWARD and each.kind == "conv2d"]
        assert backward[0].flops == 2 * forward[1].flops
        assert backward[1].flops == pytest.approx(forward[0].flops, rel=0.05)  # and the bias

    def test_a_counter_belongs_to_its_norm(self) -> None:
        operators = read(models.Images(blocks=1), "4,3,16,16").operators
        assert next(each for each in operators if each.kind == "batch_norm").kernels == 2
        assert "__iadd__" not in {each.kind for each in operators}

    @pytest.mark.parametrize(
        ("model", "inputs"),
        [(models.Images(), ["4,3,16,16"]), (models.UNet(), ["2,3,8,8"]), (models.Perceptron(), ["4,16"])],
    )
    def test_products_count_as_the_framework_counts_them(self, model: nn.Module, inputs: list[str]) -> None:
        products = ("conv2d", "conv_transpose2d", "linear")
        workload = read(model, *inputs, loss="sum")
        mine = sum(each.flops for each in workload.operators if each.kind in products and each.phase == "forward")
        given = [torch.empty(parse_input(text).shape, device="meta") for text in inputs]
        with FlopCounterMode(display=False) as counter:
            model(*given)
        assert mine == counter.get_total_flops()


class TestModels:
    def test_tied_weights_count_once_and_their_gradients_are_added(self) -> None:
        model = models.Words()
        workload = read(model, "4,10:int64:100")
        assert workload.parameters == sum(each.numel() for each in model.parameters())
        tied = [each for each in workload.operators if each.kind == "accumulate"]
        assert [each.output for each in tied] == [(100, 16)]

    def test_a_recurrent_layer_is_one_operator(self) -> None:
        counts = Counter((each.kind, each.phase.value) for each in read(models.Words(), "4,10:int64:100").operators)
        assert (counts["lstm", "forward"], counts["lstm", "backward"]) == (1, 1)

    def test_a_graph_layer_gathers_and_scatters(self) -> None:
        found = kinds(read(models.Graph(), "20,16", "2,50:int64:20"), StepPhase.FORWARD)
        assert found[:4] == ["linear", "zeros_like", "index", "index_add"]

    def test_a_unet_has_its_transposed_convolution(self) -> None:
        workload = read(models.UNet(), "2,3,8,8")
        up = next(each for each in workload.operators if each.kind == "conv_transpose2d")
        assert dict(up.attributes)["transposed"] == 1
        assert up.flops == 2 * (2 * 6 * 4 * 4) * (3 * 2 * 2)

    def test_frozen_parameters_have_no_gradient_and_no_update(self) -> None:
        workload = read(models.Frozen(), "4,16", implementation="for-loop")
        assert kinds(workload, StepPhase.FORWARD) == ["linear", "relu", "linear", "cross_entropy"]
        assert kinds(workload, StepPhase.BACKWARD) == ["cross_entropy", "linear"]
        assert len(kinds(workload, StepPhase.UPDATE)) == 6

    def test_masks_are_one_operator_whose_values_are_known(self) -> None:
        found = kinds(read(models.Masked(), "4,16"), StepPhase.FORWARD)
        assert found == ["arange", "__mul__", "linear", "cross_entropy"]

    def test_hooks_and_forwards_of_a_model_are_restored(self) -> None:
        model = models.Images()
        read(model, "4,3,16,16", checkpointing=True)
        assert all("forward" not in vars(each) for each in model.modules())
        assert model.stem(torch.empty(1, 3, 8, 8, device="meta")).shape == (1, 8, 4, 4)


class TestOptions:
    @pytest.mark.parametrize(
        ("optimizer", "implementation", "expected"),
        [
            ("sgd", "default", ["_foreach_mul_", "_foreach_add_", "_foreach_add_"]),
            ("sgd", "foreach", ["_foreach_mul_", "_foreach_add_", "_foreach_add_"]),
            ("sgd", "fused", ["_fused_sgd_"]),
            ("adam", "fused", ["_fused_adam_"]),
            ("adamw", "fused", ["_fused_adamw_"]),
        ],
    )
    def test_updates_of_all_parameters_at_once(self, optimizer: str, implementation: str, expected: list[str]) -> None:
        chosen = {} if implementation == "default" else {"implementation": implementation}
        workload = read(models.Perceptron(), "4,16", optimizer=optimizer, **chosen)
        updates = [each for each in workload.operators if each.phase is StepPhase.UPDATE]
        assert [each.kind for each in updates] == expected
        assert updates[-1].parameters == workload.parameters

    def test_adam_moves_more_than_sgd_and_fused_less_than_both(self) -> None:
        def moved(**options: str) -> float:
            operators = read(models.Perceptron(), "4,16", **options).operators
            return sum(each.bytes_moved for each in operators if each.phase is StepPhase.UPDATE)

        assert moved(optimizer="adamw", implementation="fused") < moved(optimizer="sgd") < moved(optimizer="adam")
        loop = moved(optimizer="adam", implementation="for-loop")
        assert moved(optimizer="adam", implementation="foreach") == pytest.approx(loop, rel=0.1)

    def test_accumulation_repeats_batches_and_adds_gradients_but_updates_once(self) -> None:
        one, four = read(models.Perceptron(), "4,16"), read(models.Perceptron(), "4,16", accumulation=4)
        assert kinds(four, StepPhase.FORWARD).count("linear") == 4 * kinds(one, StepPhase.FORWARD).count("linear")
        added = kinds(four, StepPhase.BACKWARD).count("accumulate") - 4 * kinds(one, StepPhase.BACKWARD).count(
            "accumulate"
        )
        assert added == 3 * 6
        assert kinds(four, StepPhase.UPDATE) == kinds(one, StepPhase.UPDATE)

    def test_checkpointing_computes_blocks_again_before_their_gradients(self) -> None:
        plain, kept = read(models.Images(), "4,3,16,16"), read(models.Images(), "4,3,16,16", checkpointing=True)
        again = [each for each in kept.operators if each.get("recomputed", 0)]
        assert Counter(each.kind for each in again) == {"conv2d": 3, "batch_norm": 3, "relu": 3}
        assert kinds(kept, StepPhase.BACKWARD) == kinds(plain, StepPhase.BACKWARD)
        places = [place for place, each in enumerate(kept.operators) if each.get("recomputed", 0)]
        backward = [place for place, each in enumerate(kept.operators) if each.phase is StepPhase.BACKWARD]
        assert min(backward) < min(places) < max(backward)
        assert kept.layers[places[0]] == "blocks.2.conv"

    @pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16")])
    def test_mixed_precision_casts_products_and_keeps_the_rest(self, precision: str, dtype: str) -> None:
        workload = read(models.Perceptron(), "4,16", precision=precision)
        forward = [each for each in workload.operators if each.phase is StepPhase.FORWARD]
        assert {each.dtype for each in forward if each.kind == "linear"} == {dtype}
        assert [each.dtype for each in forward if each.kind == "cross_entropy"] == ["float32"]
        casts = [each for each in forward if each.kind == "to" and each.dtype == dtype]
        assert sum(len(each.inputs[0]) == 2 and each.inputs[0][0] == 16 for each in casts) == 2  # weights, once
        updates = {each.dtype for each in workload.operators if each.phase is StepPhase.UPDATE}
        assert updates == {"float32"}
        linear = next(each for each in forward if each.kind == "linear")
        assert (linear.parameters, linear.input_gradient) == (16 * 16 + 16, False)

    def test_scaled_losses_are_unscaled_before_the_update(self) -> None:
        updates = kinds(read(models.Perceptron(), "4,16", precision="fp16"), StepPhase.UPDATE)
        assert updates[0] == "_amp_foreach_non_finite_check_and_unscale_"

    @pytest.mark.parametrize(("precision", "dtype"), [("tf32", "float32"), ("half", "float16"), ("fp8", "bfloat16")])
    def test_settings_have_the_usual_name_of_a_precision(self, precision: str, dtype: str) -> None:
        workload = read(models.Perceptron(), "4,16", precision=precision)
        assert workload.settings["precision"] == {"half": "fp16"}.get(precision, precision)
        assert {each.dtype for each in workload.operators if each.kind == "linear"} == {dtype}

    def test_pure_precision_halves_what_is_moved(self) -> None:
        whole, half = read(models.Images(), "4,3,16,16"), read(models.Images(), "4,3,16,16", precision="pure-bf16")
        assert kinds(half, StepPhase.FORWARD) == kinds(whole, StepPhase.FORWARD)
        assert half.bytes_moved == pytest.approx(whole.bytes_moved / 2, rel=0.01)

    @pytest.mark.parametrize(
        ("loss", "kind"),
        [("cross_entropy", "cross_entropy"), ("mse", "mse_loss"), ("sum", "sum"), ("auto", "cross_entropy")],
    )
    def test_losses(self, loss: str, kind: str) -> None:
        assert kinds(read(models.Perceptron(), "4,16", loss=loss), StepPhase.FORWARD)[-1] == kind

    def test_a_model_may_return_its_own_loss(self) -> None:
        assert kinds(read(models.Scored(), "4,16"), StepPhase.FORWARD)[-1] == "mean"
        with pytest.raises(SpecError, match="returns its loss"):
            read(models.Perceptron(), "4,16", loss="own")

    def test_cross_entropy_of_tokens_is_over_the_vocabulary(self) -> None:
        operators = read(models.Words(), "4,10:int64:100").operators
        assert next(each for each in operators if each.kind == "cross_entropy").inputs == ((40, 100), (40,))


class TestErrors:
    def test_a_wrong_shape_names_the_layer_its_call_and_its_inputs(self) -> None:
        with pytest.raises(WorkloadError, match=r"in layer 'stem' \(conv2d on \(4, 5, 16, 16\)") as error:
            read(models.Images(), "4,5,16,16")
        assert "models.py:" in str(error.value)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("model", "line", "assumed"),
        [
            (models.Branching(), "if x.sum() > 0:", "assumed to be False"),
            (models.Picking(), "return x[x > 0]", "of 64 values that are unknown, 50% were assumed to be set"),
        ],
    )
    def test_unknown_values_are_assumed_and_noted_with_the_line(
        self, model: nn.Module, line: str, assumed: str
    ) -> None:
        (note,) = read(model, "4,16", loss="sum").notes
        assert "models.py:" in note
        assert line in note
        assert assumed in note

    def test_a_loop_that_waits_for_an_unknown_value_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hybrid_tensors, "READS", 50)
        with pytest.raises(
            WorkloadError, match=r"models.py:\d+ 'while not .*: the step depends on tensor values"
        ) as error:
            read(models.Waiting(), "4,16")
        assert "Limit the loop" in str(error.value)

    def test_a_missing_argument_is_the_models_own_error(self) -> None:
        with pytest.raises(WorkloadError, match="missing 1 required positional argument: 'edges'"):
            read(models.Graph(), "20,16")

    def test_a_model_can_be_read_after_it_failed(self) -> None:
        model = models.Images()
        with pytest.raises(WorkloadError):
            read(model, "4,5,16,16")
        assert read(model, "4,3,16,16") == read(models.Images(), "4,3,16,16")


class TestInference:
    def test_only_the_forward_phase_runs_and_no_loss(self) -> None:
        workload = read(models.Perceptron(), "4,16", mode="inference")
        assert {each.phase for each in workload.operators} == {StepPhase.FORWARD}
        assert workload.operators[-1].kind == "linear"
        assert (workload.settings["mode"], workload.gradients) == ("inference", ())

    def test_dropout_is_gone_and_batch_norms_keep_their_averages(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 2))
        trained, applied = read(model, "2,3,8,8"), read(model, "2,3,8,8", mode="inference")
        assert kinds(trained, StepPhase.FORWARD)[:3] == ["conv2d", "batch_norm", "dropout"]
        assert kinds(applied, StepPhase.FORWARD) == ["conv2d", "batch_norm", "linear"]
        norms = [next(each for each in one.operators if each.kind == "batch_norm") for one in (trained, applied)]
        assert norms[1].kernels < norms[0].kernels  # no counter of batches

    def test_precision_is_that_of_autocast_there_too(self) -> None:
        workload = read(models.Perceptron(), "4,16", mode="inference", precision="bf16")
        assert {each.dtype for each in workload.operators if each.kind == "linear"} == {"bfloat16"}
