"""Large language models of any size, as ``foretell advise`` reads them."""

from typing import Any

from torch import nn


def build_llama(**sizes: Any) -> nn.Module:
    """A Llama from Hugging Face's configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM(LlamaConfig(**sizes))
    return model
