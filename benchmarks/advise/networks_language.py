"""Networks for text: BERT, GPT-2, decoders of Megatron, Transformer-XL."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from benchmarks.advise.networks import Network, describe_tokens
from benchmarks.advise.networks_xl import TransformerXl, XlShape, describe_segments
from benchmarks.distributed.decoders import Decoder, DecoderShape
from benchmarks.distributed.eight_bits import TENSORS, fuse, scale_and_fuse
from benchmarks.distributed.megatron_models import SHAPES
from benchmarks.sanity.networks import BERT_LARGE, BertSquad, LanguageModel
from foretell.core.workload import Workload

_BERT_WORDS = 30528  # NVIDIA's code pads the 30,522 words to a multiple of 8


class _MaskedBert(nn.Module):
    """BERT's pre-training as NVIDIA's code does it: only masked tokens are compared with all words.

    ``sequence_output_is_dense`` in
    https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/LanguageModeling/BERT/modeling.py.
    """

    def __init__(self, size: Mapping[str, int], masked: int, attention: str = "eager") -> None:
        super().__init__()
        self.masked = masked
        self.encoder = _build_bert(size, attention)
        hidden = self.encoder.config.hidden_size
        self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.words = nn.Linear(hidden, _BERT_WORDS)
        self.words.weight = self.encoder.embeddings.word_embeddings.weight
        self.next = nn.Linear(hidden, 2)

    def forward(self, ids: Tensor) -> Tensor:
        found = self.encoder(input_ids=ids)
        chosen = found.last_hidden_state[:, : self.masked].flatten(0, 1)
        loss = functional.cross_entropy(self.words(self.transform(chosen)), ids[:, : self.masked].flatten())
        return loss + functional.cross_entropy(self.next(found.pooler_output), ids[:, 0])


def _build_bert(size: Mapping[str, int], attention: str) -> Any:
    import transformers

    config = transformers.BertConfig(**size, vocab_size=_BERT_WORDS, max_position_embeddings=512)
    return transformers.BertModel._from_config(config, attn_implementation=attention)


def _build_transformer(model: str, config: str, *, attention: str = "eager", **values: Any) -> Any:
    import transformers

    chosen = getattr(transformers, config)(**values)
    return getattr(transformers, model)._from_config(chosen, attn_implementation=attention)


class _MaskedLanguageModel(nn.Module):
    """A model of transformers that gets its labels and returns its loss."""

    def __init__(self, model: Any, *, first: bool = False) -> None:
        super().__init__()
        self.model, self.first = model, first

    def forward(self, ids: Tensor) -> Tensor:
        labels = ids[:, 0].clamp(max=1) if self.first else ids
        loss: Tensor = self.model(input_ids=ids, labels=labels).loss
        return loss


def _build_gpt2(attention: str, **size: int) -> nn.Module:
    """GPT-2, with dropout as its configuration has it."""
    return LanguageModel(
        _build_transformer("GPT2LMHeadModel", "GPT2Config", attention=attention, use_cache=False, **size)
    )


def _decode(
    shape: DecoderShape, tokens: int, change: Callable[[Workload], Workload] = lambda workload: workload
) -> Network:
    return Network(
        build=lambda: Decoder(shape),
        describe=describe_tokens(tokens, shape.words),
        options={"optimizer": "adam", "implementation": "fused", "loss": "own"},
        change=change,
    )


_LAMB = {"optimizer": "adam", "implementation": "fused", "loss": "own"}  # Apex' LAMB also runs in few kernels
_ADAMW = {"optimizer": "adamw", "implementation": "for-loop", "loss": "own"}
_BASE = XlShape(layers=16, width=512, heads=8, inner=2048, tokens=192, dropout=0.1, divides=False)
_LARGE = XlShape(layers=18, width=1024, heads=16, inner=4096, tokens=384, dropout=0.2, divides=True)
# FlagScale calls the fused norm of Apex; PyTorch's norm of layers is one kernel as well.
_AQUILA = DecoderShape(layers=32, width=4096, heads=32, key_heads=32, inner=11008, words=100096, norm="layer")
_LLAMA2 = DecoderShape(layers=32, width=4096, heads=32, key_heads=32, inner=11008, words=50432)  # words of GPT-NeoX


def _masked(size: Mapping[str, int], tokens: int, masked: int, attention: str = "eager") -> Network:
    return Network(
        build=lambda: _MaskedBert(size, masked, attention),
        describe=describe_tokens(tokens, _BERT_WORDS),
        options=_LAMB,
    )


NETWORKS = {
    "bert-large 128": _masked(BERT_LARGE, 128, 20),
    "bert-large squad": Network(
        build=lambda: BertSquad(_build_bert(BERT_LARGE, "eager")),
        describe=describe_tokens(384, _BERT_WORDS),
        options=_LAMB,
    ),
    "bert-large masked": Network(
        build=lambda: _MaskedLanguageModel(
            _build_transformer("BertForMaskedLM", "BertConfig", **dict[str, Any](BERT_LARGE))
        ),
        describe=describe_tokens(512, 30522),
        options=_ADAMW,
    ),
    "distilbert": Network(
        build=lambda: _MaskedLanguageModel(
            _build_transformer("DistilBertForSequenceClassification", "DistilBertConfig"), first=True
        ),
        describe=describe_tokens(512, 30522),
        options=_ADAMW,
    ),
    "cpm": Network(
        build=lambda: _build_gpt2("eager", n_layer=24, n_embd=1024, n_head=16, vocab_size=30000),
        describe=describe_tokens(200, 30000),
        options=_LAMB | {"checkpointing": True},
    ),
    "transformer-xl base": Network(
        build=lambda: TransformerXl(_BASE), describe=describe_segments(_BASE), options=_LAMB
    ),
    "transformer-xl large": Network(
        build=lambda: TransformerXl(_LARGE), describe=describe_segments(_LARGE), options=_LAMB
    ),
    "aquila2-7b 2048": _decode(_AQUILA, 2048),
    "llama2-7b 4096": _decode(_LLAMA2, 4096),
    "llama3-8b 8192": _decode(SHAPES["LLAMA3-8B"], 8192, fuse),
    "gpt3-175b fp8": _decode(
        DecoderShape(
            layers=96,
            width=12288,
            heads=96,
            key_heads=96,
            inner=49152,
            words=51200,
            activation="gelu",
            norm="layer",
            learned_places=2048,
            tied=True,
        ),
        2048,
        lambda workload: scale_and_fuse(workload, TENSORS),
    ),
}
