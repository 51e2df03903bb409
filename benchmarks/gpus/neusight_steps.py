"""Steps of language models as the authors of NeuSight measured them: forward, or forward and backward, no update.

In single precision without TF32, with attention as products and a softmax. The loss itself was not measured.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import pandas as pd
import torch
from torch import nn

from benchmarks.gpus.models import drop_updates, read_transformer
from benchmarks.gpus.results import DATA
from benchmarks.gpus.step_labels import StepLabel
from foretell.core.workload import Workload
from foretell.workloads.step_options import InputSpec, StepOptions

FOLDER = DATA / "neusight"
SEEN = ("P4", "P100", "V100-PCIe-32", "T4", "A100-PCIe-40")  # whose operators NeuSight was fitted on
DEVICES = {
    "Tesla_P4": "P4",
    "Tesla_P100-PCIE-16GB": "P100",
    "Tesla_V100-PCIE-32GB": "V100-PCIe-32",
    "Tesla_T4": "T4",
    "NVIDIA_A100-PCIE-40GB": "A100-PCIe-40",
    "NVIDIA_A100-SXM4-40GB": "A100-40",
    "NVIDIA_A100_80GB_PCIe": "A100-PCIe-80",
    "NVIDIA_H100_80GB_HBM3": "H100",
    "NVIDIA_L4": "L4",
    "AMD_Instinct_MI100": "MI100",
    "AMD_Instinct_MI210": "MI210",
    "AMD_Instinct_MI250": "MI250",
}
# Architectures by the beginning of a configuration's name, in training and in inference.
_ARCHITECTURES = {
    "bert": ("BertForPreTraining", "BertForSequenceClassification"),
    "gpt": ("GPT2LMHeadModel", "GPT2LMHeadModel"),
    "opt": ("OPTForCausalLM", "OPTForCausalLM"),
    "switch": ("SwitchTransformersForConditionalGeneration", "SwitchTransformersForConditionalGeneration"),
}


@cache
def list_labels() -> tuple[StepLabel, ...]:
    """The measured steps on one GPU, without fused operators."""
    return tuple(_list())


@cache
def find_published() -> Mapping[str, float]:
    """Seconds that NeuSight predicts, by :func:`name_published`; some steps have none."""
    rows: Any = pd.read_csv(FOLDER / "e2e_measured_and_peer_predictions.csv")
    rows = rows[rows.option.isna() & rows.device.isin(DEVICES)]
    modes = rows["mode"].map({"train": "training", "inf": "inference"})
    models = rows.model_name + " " + rows.seqlen.astype(str)
    names = rows.device.map(DEVICES) + " " + models + " " + modes + " " + rows.batch.astype(str)
    return dict(zip(names, rows.neusight_all_e2e_latency / 1e3, strict=True))


def name_published(label: StepLabel) -> str:
    """A step among those that NeuSight predicts."""
    return f"{label.device} {label.model} {label.mode} {label.batch}"


def _list() -> Iterator[StepLabel]:
    rows: Any = pd.read_csv(FOLDER / "e2e_labels.csv")
    for row in rows.itertuples():
        model, mode, length, batch, *option = str(row.case).split("-")
        family = next((name for name in _ARCHITECTURES if model.startswith(name)), None)
        if option or family is None or row.device not in DEVICES:
            continue
        training = mode == "train"
        yield StepLabel(
            source="neusight",
            model=f"{model} {length}",
            family=family,
            device=DEVICES[str(row.device)],
            mode="training" if training else "inference",
            precision="fp32",
            batch=int(batch),
            seconds=float(row.e2e_latency) / 1e3,
            read=partial(_read, model, family, int(batch), int(length), training=training),
        )


def _read(model: str, family: str, batch: int, length: int, *, training: bool) -> Workload | None:
    ids = InputSpec(shape=(batch, length), dtype="int64", high=100, name="input_ids")
    decoded = InputSpec(shape=(batch, length), dtype="int64", high=100, name="decoder_input_ids")
    mode = "training" if training else "inference"
    workload = read_transformer(
        FOLDER / "DLmodel_configs" / f"{model}.json",
        _ARCHITECTURES[family][0 if training else 1],
        (ids, decoded) if family == "switch" else (ids,),
        loss="prediction_logits" if family == "bert" and training else "logits",
        options=StepOptions(precision="fp32", mode=mode),
        change=partial(_limit_experts, rows=batch),
    )
    return drop_updates(workload) if workload else None


def _limit_experts(model: nn.Module, *, rows: int) -> None:
    """Let each expert of a switch transformer compute as many rows as it has capacity for.

    Which of them get rows depends on values; with equal tokens, as they were measured, most are beyond the capacity.
    """
    for name, module in model.named_modules():
        if name.endswith("mlp.experts"):
            capacity = int(model.config.expert_capacity)  # type: ignore[union-attr,arg-type]
            module.forward = partial(_apply_experts, module, rows=rows * capacity)


def _apply_experts(
    experts: nn.ModuleDict, hidden: torch.Tensor, _chosen: torch.Tensor, weights: torch.Tensor, *, rows: int
) -> torch.Tensor:
    result = torch.zeros_like(hidden)
    places = torch.zeros(rows, dtype=torch.int64, device=hidden.device)
    for expert in experts.values():
        given = hidden.index_select(0, places)
        result.index_add_(0, places, expert(given) * weights.index_select(0, places))
    return result
