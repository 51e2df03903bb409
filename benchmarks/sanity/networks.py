"""The models of the published pairs, built from torchvision's and transformers' code without data."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.capture import declare_torchvision
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.step_options import InputSpec

BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
LLAMA3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "use_cache": False,
}
# NVIDIA's code pads the 30,522 words of BERT to a multiple of 8.
_VOCABULARY = {"bert": 30528, "gpt2": 50257, "llama3": 128256}


def build_network(name: str) -> nn.Module:
    """A model of the published pairs by its name there."""
    declare_torchvision()
    with HybridTensors():
        return _build(name)


def list_inputs(name: str, batch: int, length: int) -> tuple[InputSpec, ...]:
    """What the model is given."""
    if name == "resnet50":
        return (InputSpec(shape=(batch, 3, 224, 224)),)
    family = name.partition("-")[0]
    return (InputSpec(shape=(batch, length), dtype="int64", high=_VOCABULARY[family], name="ids"),)


def _build(name: str) -> nn.Module:
    import torchvision
    import transformers

    if name == "resnet50":
        model: nn.Module = torchvision.models.resnet50()
        return model
    if name == "gpt2":
        config = transformers.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False)
        return LanguageModel(transformers.GPT2LMHeadModel._from_config(config, attn_implementation="sdpa"))
    if name == "llama3-8b":
        llama: Any = transformers.LlamaForCausalLM._from_config(
            transformers.LlamaConfig(**LLAMA3_8B), attn_implementation="sdpa"
        )
        _keep(llama.model.layers[1::2])
        return LanguageModel(llama)
    size = BERT_LARGE if "large" in name else {}
    config = transformers.BertConfig(**size, vocab_size=_VOCABULARY["bert"], max_position_embeddings=512)
    encoder = transformers.BertModel._from_config(config, attn_implementation="eager")
    return BertSquad(encoder) if "squad" in name else BertPretraining(encoder)


def _keep(layers: Sequence[Any]) -> None:
    """Keep the activations of these layers: only blocks of a repeated class are computed again."""
    for number, layer in enumerate(layers):
        layer.__class__ = type(f"Kept{number}", (type(layer),), {})


class LanguageModel(nn.Module):
    """A causal language model that predicts each next token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=ids).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


class BertPretraining(nn.Module):
    """BERT that predicts its masked tokens, and whether two sentences follow one another.

    Words are predicted for all tokens, and the loss ignores those that are not masked, as NVIDIA's code of 2020 did.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        hidden = encoder.config.hidden_size
        self.encoder = encoder
        self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.words = nn.Linear(hidden, encoder.config.vocab_size)
        self.words.weight = encoder.embeddings.word_embeddings.weight
        self.next = nn.Linear(hidden, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.encoder(input_ids=ids)
        words = self.words(self.transform(found.last_hidden_state))
        follows = nn.functional.cross_entropy(self.next(found.pooler_output), ids[:, 0])
        return nn.functional.cross_entropy(words.flatten(0, 1), ids.flatten()) + follows


class BertSquad(nn.Module):
    """BERT that finds the begin and the end of an answer."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.ends = nn.Linear(encoder.config.hidden_size, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        ends = self.ends(self.encoder(input_ids=ids).last_hidden_state)
        first, last = (nn.functional.cross_entropy(ends[..., place], ids[:, 0]) for place in (0, 1))
        return (first + last) / 2
