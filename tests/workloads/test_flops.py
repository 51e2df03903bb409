"""The floating-point operations of captured steps are those that PyTorch's own counter finds in real ones."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.workloads import models
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from foretell.workloads.capture import capture
from foretell.workloads.step_options import InputSpec, StepOptions, parse_input

transformers = pytest.importorskip("transformers")
_aten = torch.ops.aten
_SMALL = {
    "vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_TEXTS = ("input_ids=2,24:int64:200", "labels=2,24:int64:200")
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _attention(query: Any, key: Any, value: Any, *_others: Any, **_named: Any) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_others: Any, **_named: Any) -> int:
    return int(sdpa_backward_flop_count(gradient, query, key, value))  # type: ignore[no-untyped-call]


# PyTorch's counter knows the attention of GPUs; that of CPUs is the same.
_CPU = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def build(name: str, **values: Any) -> Callable[[], nn.Module]:
    """A factory of a model of Hugging Face with random weights."""
    config = name.removesuffix("ForCausalLM").removesuffix("ForMaskedLM").removesuffix("ForConditionalGeneration")

    def factory() -> nn.Module:
        model: nn.Module = getattr(transformers, name)(getattr(transformers, f"{config}Config")(**values))
        return model

    return factory


MODELS: dict[str, tuple[Callable[[], nn.Module], Sequence[str]]] = {
    "perceptron": (models.Perceptron, ("4,16",)),
    "ResNet-like": (models.Images, ("4,3,16,16",)),
    "U-Net": (models.UNet, ("2,3,16,16",)),
    "transformer encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2),
        ("2,10,32",),
    ),
    "Llama": (build("LlamaForCausalLM", **_GROUPED), _TEXTS),
    "Qwen 3": (build("Qwen3ForCausalLM", **_GROUPED, head_dim=16), _TEXTS),
    "BERT": (build("BertForMaskedLM", **_SMALL, **_NO_DROPOUT), _TEXTS),
    "FNet": (build("FNetForMaskedLM", **{name: _SMALL[name] for name in list(_SMALL)[:4]}), _TEXTS),
    "T5": (
        build("T5ForConditionalGeneration", vocab_size=200, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
              dropout_rate=0.0, decoder_start_token_id=0, attn_implementation="eager"),
        _TEXTS,
    ),
}  # fmt: skip
# Grouped convolutions: PyTorch's counter takes the gradient of their weights for that of a full convolution.
APPLIED = {
    "Mamba": (build("MambaForCausalLM", **{name: _SMALL[name] for name in ("vocab_size", "hidden_size")}, state_size=8,
                    num_hidden_layers=2), _TEXTS[:1]),
    "grouped convolutions": (lambda: nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 32, 3, groups=4)),
                             ("2,16,12,12",)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), ("2,8,9,9",)),
    "one-dimensional convolution": (lambda: nn.Conv1d(8, 4, 5, dilation=2), ("2,8,40",)),
    "three-dimensional convolution": (lambda: nn.Conv3d(3, 4, 3), ("2,3,8,8,8",)),
}  # fmt: skip


def count(model: nn.Module, inputs: Sequence[InputSpec], *, device: str = "cpu", learn: bool = True) -> float:
    """The operations of a real step, by PyTorch's own counter."""
    args, kwargs = [], {}
    for each in inputs:
        whole = each.dtype != "float32"
        tensor = torch.randint(0, each.high or 2, each.shape) if whole else torch.randn(each.shape)
        if each.name:
            kwargs[each.name] = tensor.to(device)
        else:
            args.append(tensor.to(device))
    with FlopCounterMode(display=False, custom_mapping=_CPU) as counter:
        out = model.to(device)(*args, **kwargs)
        if learn:
            _find_loss(out).backward()  # type: ignore[no-untyped-call]
    return float(counter.get_total_flops())


def _find_loss(out: Any) -> torch.Tensor:
    if getattr(out, "loss", None) is not None:
        return torch.as_tensor(out.loss)
    return torch.as_tensor(out[0] if isinstance(out, tuple) else out).sum()


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_has_the_operations_of_a_real_one(name: str) -> None:
    factory, texts = MODELS[name]
    inputs = [parse_input(text) for text in texts]
    workload = capture(factory(), inputs)
    assert workload.product_flops == pytest.approx(count(factory(), inputs), rel=0.01)
    assert workload.unknown == {}


@pytest.mark.parametrize("name", APPLIED)
def test_inference_has_the_operations_of_a_real_one(name: str) -> None:
    factory, texts = APPLIED[name]
    inputs = [parse_input(text) for text in texts]
    workload = capture(factory(), inputs, options=StepOptions(mode="inference"))
    assert workload.product_flops == pytest.approx(count(factory().eval(), inputs, learn=False), rel=0.01)
    assert workload.unknown == {}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True, "num_layers": 2}])
def test_recurrent_networks_have_the_operations_of_their_cells(kind: Any, options: dict[str, Any]) -> None:
    inputs = [parse_input("6,9,16")]
    workload = capture(kind(16, 32, **options), inputs)
    expected = count(kind(16, 32, **options), inputs, device="meta")  # the kernel of CPUs is not counted
    assert workload.product_flops == pytest.approx(expected, rel=0.01)
    steps = 9 if options else 6
    forward, backward = (
        next(each for each in workload.operators if each.kind in ("lstm", "gru", "rnn_tanh") and each.phase == phase)
        for phase in ("forward", "backward")
    )
    layers = 4 if options else 1
    assert forward.kernels == layers * (1 + 2 * steps)
    assert backward.flops == pytest.approx(2 * forward.flops, rel=0.2)


@pytest.mark.parametrize("precision", ["fp32", "pure-bf16"])
def test_experts_are_products_of_the_rows_that_reach_them(precision: str) -> None:
    factory = build("MixtralForCausalLM", **_GROUPED, num_local_experts=4, num_experts_per_tok=2)
    inputs = [parse_input(text) for text in _TEXTS]
    workload = capture(factory(), inputs, options=StepOptions(precision=precision))
    one_by_one = factory()
    one_by_one.config._experts_implementation = "eager"
    assert workload.product_flops == pytest.approx(count(one_by_one, inputs), rel=0.01)
    assert {"grouped_mm", "_grouped_mm"} & {each.kind for each in workload.operators}
    assert workload.unknown == {}
