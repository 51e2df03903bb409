"""Operators are split into the tasks of a device, and no work is lost."""

from dataclasses import replace

import pytest
from tests.steps.synthetic_steps import make_operator

from foretell.core.workload import Attribute, Operator, Shape, StepPhase
from foretell.steps.device_tasks import DeviceTask, TaskKind, split_operator
from foretell.workloads.operator_costs import cost

FORWARD, BACKWARD, UPDATE = StepPhase
BOTH = pytest.mark.parametrize("phase", [FORWARD, BACKWARD])


def make(
    kind: str,
    *inputs: Shape,
    output: Shape,
    phase: StepPhase = FORWARD,
    input_gradient: bool = True,
    **attributes: Attribute,
) -> Operator:
    """An operator with the costs of its shapes."""
    said = tuple(sorted(attributes.items()))
    found = cost(kind, phase, inputs, output, said, input_gradient=input_gradient)
    return Operator(
        kind=kind, phase=phase, inputs=inputs, output=output, attributes=said, flops=found.flops,
        bytes_moved=found.bytes_moved, kernels=found.kernels, input_gradient=input_gradient,
    )  # fmt: skip


def convolve(*, phase: StepPhase = FORWARD, groups: int = 1, bias: bool = False, first: bool = False) -> Operator:
    weight = (32, 16 // groups, 3, 3)
    inputs = ((8, 16, 10, 10), weight, *([weight[:1]] if bias else []))
    return make("conv2d", *inputs, output=(8, 32, 10, 10), phase=phase, input_gradient=not first, groups=groups)


def count_flops(parts: tuple[DeviceTask, ...], *works: TaskKind) -> float:
    return sum(part.flops * part.repeats for part in parts if part.task_kind in (works or TaskKind))


@BOTH
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_tasks_of_a_convolution_have_all_its_work(phase: StepPhase, groups: int) -> None:
    operator = convolve(phase=phase, groups=groups)
    (part,) = split_operator(operator)
    assert part.task_kind is TaskKind.CONVOLUTION
    assert part.flops * part.repeats == pytest.approx(operator.flops)


@pytest.mark.parametrize(("groups", "repeats"), [(1, 1), (4, 4), (16, 1)])
def test_groups_run_one_by_one_unless_depthwise(groups: int, repeats: int) -> None:
    (part,) = split_operator(convolve(groups=groups))
    assert part.repeats == repeats


def test_convolutions_are_described_group_by_group() -> None:
    (part,) = split_operator(convolve(groups=4))
    images, channels, made, groups, size_in, size_out, high, wide, stride, _padding, times = part.sizes
    assert (images, channels, made, groups) == (8, 4, 8, 1)
    assert (size_in, size_out, high, wide, stride, times) == (10, 10, 3, 3, 1, 1)


def test_attributes_of_one_number_or_two_are_the_same() -> None:
    shapes = ((8, 16, 10, 10), (32, 16, 3, 3))
    one = make("conv2d", *shapes, output=(8, 32, 5, 5), stride=2, padding=1)
    two = make("conv2d", *shapes, output=(8, 32, 5, 5), stride=(2, 2), padding=(1, 1))
    assert split_operator(one) == split_operator(two)
    assert split_operator(one)[0].sizes[8:10] == (2, 1)


@pytest.mark.parametrize(("phase", "kind", "passes"), [(FORWARD, "add_", 2), (BACKWARD, "sum", 1)])
def test_a_bias_is_a_task_of_its_own(phase: StepPhase, kind: str, passes: int) -> None:
    core, bias = split_operator(convolve(phase=phase, bias=True))
    assert (core,) == split_operator(convolve(phase=phase))
    assert (bias.task_kind, bias.kind, bias.phase) == (TaskKind.MEMORY_PASS, kind, phase)
    assert bias.bytes_moved == passes * 8 * 32 * 10 * 10 * 4


def test_the_first_convolution_computes_one_gradient() -> None:
    (usual,), (first,) = split_operator(convolve(phase=BACKWARD)), split_operator(convolve(phase=BACKWARD, first=True))
    assert (usual.kernels, first.kernels) == (2, 1)
    assert (usual.flops, usual.bytes_moved) == (2 * first.flops, 2 * first.bytes_moved)


def test_a_transposed_convolution_is_one_with_its_ends_exchanged() -> None:
    operator = make("conv_transpose2d", (8, 32, 5, 5), (32, 16, 2, 2), output=(8, 16, 10, 10), stride=2)
    (part,) = split_operator(operator)
    assert part.flops == pytest.approx(operator.flops)
    assert part.sizes[:6] == (8, 16, 32, 1, 10, 5)


@BOTH
def test_a_linear_is_one_product_or_two(phase: StepPhase) -> None:
    operator = make("linear", (4, 50, 64), (96, 64), output=(4, 50, 96), phase=phase)
    (part,) = split_operator(operator)
    assert (part.task_kind, part.sizes) == (TaskKind.PRODUCT, (200, 96, 64, 1))
    assert part.kernels == (1 if phase is FORWARD else 2)
    assert part.flops == pytest.approx(operator.flops)


def test_the_first_linear_computes_one_gradient() -> None:
    operator = make("linear", (8, 64), (96, 64), output=(8, 96), phase=BACKWARD, input_gradient=False)
    (part,) = split_operator(operator)
    assert (part.kernels, part.flops) == (1, 2 * 8 * 64 * 96)


@pytest.mark.parametrize(
    ("phase", "shape", "kinds"),
    [
        (FORWARD, (8, 64), ["linear"]),  # the bias is added by the product itself
        (FORWARD, (2, 7, 7, 64), ["linear", "add_"]),
        (BACKWARD, (8, 64), ["linear", "sum"]),
    ],
)
def test_the_bias_of_a_linear_is_a_pass_where_pytorch_adds_it_separately(
    phase: StepPhase, shape: Shape, kinds: list[str]
) -> None:
    parts = split_operator(make("linear", shape, (96, 64), (96,), output=(*shape[:-1], 96), phase=phase))
    assert [part.kind for part in parts] == kinds
    assert all(part.task_kind is TaskKind.MEMORY_PASS for part in parts[1:])


@pytest.mark.parametrize(
    ("first", "second", "sizes"),
    [
        ((4, 12, 50, 64), (4, 12, 64, 30), (50, 30, 64, 48)),
        ((50, 64), (4, 64, 30), (50, 30, 64, 4)),
        ((4, 50, 64), (64, 30), (200, 30, 64, 1)),
        ((50, 64), (64,), (50, 1, 64, 1)),
    ],
)
def test_products_are_counted(first: Shape, second: Shape, sizes: tuple[float, ...]) -> None:
    (part,) = split_operator(make("matmul", first, second, output=()))
    rows, columns, inner, many = sizes
    assert (part.task_kind, part.sizes) == (TaskKind.PRODUCT, sizes)
    assert part.flops == 2 * rows * columns * inner * many


def test_attention_is_two_products_and_a_softmax() -> None:
    heads = (2, 12, 197, 64)
    operator = make("scaled_dot_product_attention", heads, heads, heads, output=heads)
    parts = split_operator(operator)
    assert [part.kind for part in parts] == ["matmul", "softmax", "matmul"]
    assert count_flops(parts, TaskKind.PRODUCT) == pytest.approx(operator.flops)


@BOTH
def test_tasks_of_multi_head_attention_have_all_its_work(phase: StepPhase) -> None:
    shape = (197, 2, 768)
    operator = make("multi_head_attention_forward", shape, output=shape, phase=phase, num_heads=12)
    parts = split_operator(operator)
    assert [part.kind for part in parts if part.task_kind is TaskKind.PRODUCT] == [
        "linear",
        "matmul",
        "matmul",
        "linear",
    ]
    assert count_flops(parts) == pytest.approx(operator.flops, rel=0.01)


def test_heads_are_64_wide_by_default() -> None:
    shape = (197, 2, 768)
    said = make("multi_head_attention_forward", shape, output=shape, num_heads=12)
    unsaid = make("multi_head_attention_forward", shape, output=shape)
    assert split_operator(said) == split_operator(unsaid)


@pytest.mark.parametrize("kind", ["mul_", "add_", "linear", "conv2d"])
def test_updates_are_passes(kind: str) -> None:
    shape = (96, 64)
    operator = replace(make_operator(kind, phase=UPDATE, shape=shape), inputs=(shape, shape))
    (part,) = split_operator(operator)
    assert (part.task_kind, part.kind, part.phase) == (TaskKind.MEMORY_PASS, kind, UPDATE)
    assert (part.flops, part.bytes_moved, part.kernels) == (operator.flops, operator.bytes_moved, 1)


def test_a_pass_is_described_by_its_largest_tensor() -> None:
    (part,) = split_operator(replace(make_operator("cat", shape=(8, 16, 4, 4)), output=(8, 48, 4, 4)))
    assert part.sizes == (8, 48, 16, 4, 8 * 48 * 16)


def test_a_pass_over_a_scalar_has_sizes() -> None:
    (part,) = split_operator(replace(make_operator("item"), inputs=(), output=()))
    assert part.sizes == (1, 1, 1, 1, 1)


def test_calls_without_kernels_have_no_tasks() -> None:
    assert split_operator(replace(make_operator("__add__", phase=BACKWARD), kernels=0)) == ()


@pytest.mark.parametrize(("dtype", "item"), [("float64", 8), ("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_elements_have_the_size_of_their_type(dtype: str, item: int) -> None:
    (part,) = split_operator(replace(make("linear", (8, 64), (96, 64), output=(8, 96)), dtype=dtype))
    assert (part.item, part.bytes_moved) == (item, item * (8 * 64 + 96 * 64 + 8 * 96))


def test_equal_operators_have_equal_tasks() -> None:
    assert hash(split_operator(convolve(bias=True))) == hash(split_operator(convolve(bias=True)))
