"""Small networks of known libraries, and their training steps as they are read from code."""

from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from foretell.core.workload import Workload
from foretell.workloads.capture import capture
from foretell.workloads.step_options import StepOptions, parse_input

WIDTH, INNER, HEADS, WORDS, LAYERS, EXPERTS = 256, 640, 8, 768, 4, 16
BATCH, TOKENS = 4, 64


def build_llama(layers: int = LAYERS) -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=layers,
            num_attention_heads=2 * HEADS,
            num_key_value_heads=HEADS,
            vocab_size=WORDS,
        )
    )


def build_gpt2() -> nn.Module:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, vocab_size=WORDS, n_positions=2 * TOKENS, **ends)
    )


def build_mixtral() -> nn.Module:
    return MixtralForCausalLM(
        MixtralConfig(
            hidden_size=WIDTH,
            intermediate_size=INNER // 2,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            vocab_size=WORDS,
            num_local_experts=EXPERTS,
        )
    )


def build_bert() -> nn.Module:
    return BertForMaskedLM(
        BertConfig(
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            vocab_size=WORDS,
        )
    )


def build_resnet() -> nn.Module:
    return ResNetForImageClassification(
        ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], layer_type="basic")
    )


def build_vit() -> nn.Module:
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            image_size=64,
            patch_size=16,
        )
    )


LANGUAGE: Mapping[str, Callable[[], nn.Module]] = {
    "llama": build_llama,
    "gpt2": build_gpt2,
    "mixtral": build_mixtral,
    "bert": build_bert,
}
IMAGES: Mapping[str, Callable[[], nn.Module]] = {"resnet": build_resnet, "vit": build_vit}


@cache
def read_network(name: str, *, batch: int = BATCH, precision: str = "fp32", optimizer: str = "adamw") -> Workload:
    """The training step of one of the networks."""
    with torch.device("meta"):
        model = (LANGUAGE | IMAGES)[name]()
    given = f"{batch},{TOKENS}:int64:{WORDS}" if name in LANGUAGE else f"{batch},3,64,64"
    options = StepOptions(optimizer=optimizer, precision=precision)
    return capture(model, [parse_input(given)], options=options, name=name)
