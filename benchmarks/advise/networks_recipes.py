"""Networks of well-known recipes, besides those that others published tables of."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.advise.networks import Network, describe_images, describe_tokens
from benchmarks.distributed.decoders import Decoder, DecoderShape
from benchmarks.distributed.eight_bits import fuse
from benchmarks.distributed.mixtures import MixtureShape
from benchmarks.sanity.networks import LLAMA3_8B, LanguageModel
from foretell.workloads.lora_options import LoraOptions
from foretell.workloads.step_options import InputSpec

_MIXTRAL = DecoderShape(
    layers=32,
    width=4096,
    heads=32,
    key_heads=8,
    inner=14336,
    words=32000,
    mixture=MixtureShape(experts=8, chosen=2, inner=14336),
)
_GPT2_XL = {"n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50304}  # llm.c pads the 50,257 words
_NODES, _EDGES, _FEATURES, _KINDS = 2708, 10556, 1433, 7  # of Cora, edges in both directions


def _build_language(model: str, config: str, **values: Any) -> nn.Module:
    import transformers

    chosen = getattr(transformers, config)(**{"use_cache": False, **values})
    return LanguageModel(getattr(transformers, model)._from_config(chosen, attn_implementation="sdpa"))


class _Vit(nn.Module):
    """ViT-B/16 with attention step by step, as in 2020."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.ViTConfig(num_labels=1000)
        self.model = transformers.ViTForImageClassification._from_config(config, attn_implementation="eager")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=images).logits
        return logits


class _GraphConvolutions(nn.Module):
    """Two graph convolutions (https://arxiv.org/abs/1609.02907), with sums over neighbours by index."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(_FEATURES, 16), nn.Linear(16, _KINDS)])

    def forward(self, nodes: Tensor, sources: Tensor, targets: Tensor, norms: Tensor) -> Tensor:
        hidden = nodes
        for place, layer in enumerate(self.layers):
            hidden = layer(functional.dropout(hidden, 0.5))
            sent = (hidden * norms).index_select(0, sources)
            hidden = torch.zeros_like(hidden).index_add(0, targets, sent) * norms
            hidden = functional.relu(hidden) if place == 0 else hidden
        known = hidden[:140]
        return functional.cross_entropy(known, targets[:140].clamp(max=_KINDS - 1))


def _describe_cora(batch: int) -> tuple[InputSpec, ...]:
    ids = {"dtype": "int64", "high": _NODES}
    return (
        InputSpec(shape=(batch * _NODES, _FEATURES), name="nodes"),
        InputSpec(shape=(batch * _EDGES,), name="sources", **ids),  # type: ignore[arg-type]
        InputSpec(shape=(batch * _EDGES,), name="targets", **ids),  # type: ignore[arg-type]
        InputSpec(shape=(batch * _NODES, 1), name="norms"),
    )


NETWORKS = {
    "vit-b-16 eager": Network(
        build=_Vit, describe=describe_images(224), options={"optimizer": "adamw", "implementation": "for-loop"}
    ),
    "gpt2-xl": Network(
        build=lambda: _build_language(
            "GPT2LMHeadModel", "GPT2Config", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **_GPT2_XL
        ),
        describe=describe_tokens(1024, 50304),
        options={"optimizer": "adamw", "implementation": "fused", "loss": "own", "compile": True},
    ),
    "llama3-8b titan": Network(
        build=lambda: _build_language("LlamaForCausalLM", "LlamaConfig", **LLAMA3_8B),
        describe=describe_tokens(8192, 128256),
        options={
            "optimizer": "adamw",
            "implementation": "fused",
            "loss": "own",
            "compile": True,
            "checkpointing": True,
            "recompute": "every=2",  # torchtitan computes every second product again, and all element-wise work
        },
    ),
    "llama3-8b lora": Network(
        build=lambda: _build_language("LlamaForCausalLM", "LlamaConfig", **LLAMA3_8B),
        describe=describe_tokens(2048, 128256),
        options={
            "optimizer": "adamw",
            "implementation": "fused",
            "loss": "own",
            "checkpointing": True,
            "lora": LoraOptions(rank=8, targets=("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")),
        },
    ),
    "mixtral-8x7b": Network(
        build=lambda: Decoder(_MIXTRAL),
        describe=describe_tokens(4096, _MIXTRAL.words),
        options={"optimizer": "adam", "implementation": "fused", "loss": "own"},
        change=fuse,
    ),
    "gcn-cora": Network(
        build=_GraphConvolutions,
        describe=_describe_cora,
        options={"optimizer": "adam", "implementation": "for-loop", "loss": "own"},
    ),
}
