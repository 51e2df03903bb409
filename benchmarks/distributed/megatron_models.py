"""The models of Megatron-Bridge's benchmarks, by the names in its tables.

https://github.com/NVIDIA-NeMo/Megatron-Bridge/tree/main/src/megatron/bridge/models and, for those of 2024,
https://github.com/NVIDIA/NeMo/tree/v2.0.0/nemo/collections/llm/gpt/model.
"""

from dataclasses import replace

from benchmarks.distributed.decoders import DecoderShape
from benchmarks.distributed.mixtures import LatentShape, MixtureShape

_LLAMA2 = DecoderShape(layers=32, width=4096, heads=32, key_heads=32, inner=11008, words=32000)
_LLAMA3 = DecoderShape(layers=32, width=4096, heads=32, key_heads=8, inner=14336, words=128256)
_NEMOTRON = DecoderShape(
    layers=32, width=4096, heads=32, key_heads=32, inner=16384, words=256000, activation="relu2", norm="layer"
)
_QWEN3 = DecoderShape(
    layers=48,
    width=2048,
    heads=32,
    key_heads=4,
    inner=6144,
    words=151936,
    head_width=128,
    norm_of_queries=True,
    mixture=MixtureShape(experts=128, chosen=8, inner=768),
)
_DEEPSEEK_V3 = DecoderShape(
    layers=61,
    width=7168,
    heads=128,
    key_heads=128,
    inner=18432,
    words=129280,
    mixture=MixtureShape(experts=256, chosen=8, inner=2048, shared=2048),
    latent=LatentShape(queries=1536, keys=512, plain=128, rotary=64, value=128),
    dense_layers=3,
    predicted_layers=1,
)

SHAPES = {
    "GPT3-20B": DecoderShape(
        layers=44,
        width=6144,
        heads=48,
        key_heads=48,
        inner=24576,
        words=51200,
        activation="gelu",
        norm="layer",
        learned_places=2048,
        tied=True,
    ),
    "LLAMA2-7B": _LLAMA2,
    "LLAMA2-13B": replace(_LLAMA2, layers=40, width=5120, heads=40, key_heads=40, inner=13824),
    "LLAMA2-70B": replace(_LLAMA2, layers=80, width=8192, heads=64, key_heads=8, inner=28672),
    "LLAMA3-8B": _LLAMA3,
    "LLAMA3-70B": replace(_LLAMA3, layers=80, width=8192, heads=64, inner=28672),
    "LLAMA3.1_405B": replace(_LLAMA3, layers=126, width=16384, heads=128, inner=53248),
    "Nemotron-8B": _NEMOTRON,
    "Nemotron-22B": replace(_NEMOTRON, layers=40, width=6144, heads=48, key_heads=48, inner=24576),
    "Nemotron-340B": replace(_NEMOTRON, layers=96, width=18432, heads=96, key_heads=8, inner=73728),
    "Qwen3_30B_a3B": _QWEN3,
    "Qwen3_235B_a22B": replace(
        _QWEN3, layers=94, width=4096, heads=64, inner=12288, mixture=MixtureShape(experts=128, chosen=8, inner=1536)
    ),
    "DeepSeekV3": _DEEPSEEK_V3,
    "DeepSeekV3 (w/ MTP)": _DEEPSEEK_V3,
    "DeepSeekV3 (w/o MTP)": replace(_DEEPSEEK_V3, predicted_layers=0),
}
