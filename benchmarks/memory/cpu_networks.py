"""Thirty networks that are small enough to be trained on a CPU, from three libraries and by hand."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.capture import declare_torchvision
from foretell.workloads.step_options import InputSpec

BATCH, TOKENS, WORDS = 4, 64, 1000
_VISION = (
    "alexnet", "squeezenet1_1", "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x1_0",
    "mnasnet0_5", "densenet121", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "swin_t",
)  # fmt: skip
_TIMM = (
    "deit_tiny_patch16_224", "mixer_s32_224", "resmlp_12_224", "ghostnet_100", "edgenext_xx_small", "mobilevit_xxs",
    "pit_ti_224", "poolformer_s12", "gernet_s", "hardcorenas_a",
)  # fmt: skip
_LAYERS = {"num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}
_LANGUAGE: dict[str, dict[str, Any]] = {
    "bert": _LAYERS,
    "roberta": _LAYERS,
    "electra": _LAYERS | {"embedding_size": 128},
    "llama": _LAYERS | {"num_key_value_heads": 2},
    "qwen2": _LAYERS | {"num_key_value_heads": 2},
    "gpt2": {"n_layer": 3, "n_embd": 128, "n_head": 4},
    "gpt_neox": _LAYERS,
    "opt": {
        "num_hidden_layers": 3,
        "hidden_size": 128,
        "word_embed_proj_dim": 128,
        "num_attention_heads": 4,
        "ffn_dim": 256,
    },
    "distilbert": {"n_layers": 3, "dim": 128, "n_heads": 4, "hidden_dim": 256},
}


class Network(NamedTuple):
    """A network and its inputs."""

    name: str
    library: str
    build: Callable[[], nn.Module]
    inputs: tuple[InputSpec, ...]


def list_networks() -> Iterator[Network]:
    """All of them."""
    declare_torchvision()
    import timm
    import torchvision
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    images = (InputSpec(shape=(BATCH, 3, 224, 224)),)
    for name in _VISION:
        yield Network(name, "torchvision", getattr(torchvision.models, name), images)
    for name in _TIMM:
        yield Network(name, "timm", lambda name=name: timm.create_model(name), images)  # type: ignore[misc]
    words = (InputSpec(shape=(BATCH, TOKENS), dtype="int64", high=WORDS, name="input_ids"),)
    for name, figures in _LANGUAGE.items():
        config = AutoConfig.for_model(name, vocab_size=WORDS, **figures)
        masked = name in ("bert", "roberta", "electra", "distilbert")
        family: Any = AutoModelForMaskedLM if masked else AutoModelForCausalLM
        yield Network(name, "transformers", lambda config=config, family=family: family.from_config(config), words)  # type: ignore[misc]
    series = (InputSpec(shape=(BATCH, 32, 64)),)
    yield Network("lstm", "by hand", lambda: Recurrent(nn.LSTM), series)
    yield Network("gru", "by hand", lambda: Recurrent(nn.GRU), series)
    yield Network("unet", "by hand", UNet, (InputSpec(shape=(BATCH, 3, 128, 128)),))
    yield Network("encoder", "by hand", build_encoder, (InputSpec(shape=(BATCH, 64, 128)),))


def build_encoder() -> nn.Module:
    """Three layers of an encoder."""
    return nn.Sequential(*(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True) for _ in range(3)))


class Recurrent(nn.Module):
    """Two recurrent layers and a linear one."""

    def __init__(self, family: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layers = family(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Scores after the last word."""
        out: torch.Tensor = self.head(self.layers(given)[0][:, -1])
        return out


class UNet(nn.Module):
    """Three levels down and up, with connections between them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_build_pair(3, 16), _build_pair(16, 32), _build_pair(32, 64)])
        self.pool = nn.MaxPool2d(2)
        self.raise_ = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
        self.up = nn.ModuleList([_build_pair(64, 32), _build_pair(32, 16)])
        self.head = nn.Conv2d(16, 5, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Scores of five classes for each pixel."""
        first = self.down[0](given)
        second = self.down[1](self.pool(first))
        given = self.raise_[0](self.down[2](self.pool(second)))
        given = self.raise_[1](self.up[0](torch.cat([given, second], 1)))
        out: torch.Tensor = self.head(self.up[1](torch.cat([given, first], 1)))
        return out


def _build_pair(given: int, out: int) -> nn.Module:
    parts = [nn.Conv2d(given, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))
