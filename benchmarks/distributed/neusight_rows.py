"""Steps of GPT-2 and GPT-3 on four A100 or H100, measured by the authors of NeuSight: forward and backward, no update.

Of the examples, each GPU has a part with dp4; with tp4 and pp4 all of them are one batch. A pipeline of one batch has
no stage that works while another one does. The gradients of dp4 are reduced by DistributedDataParallel.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.distributed.model_captures import drop_update
from benchmarks.distributed.shared_rows import PredictedRow, SharedRow, judge_predicted, predict_rows
from benchmarks.gpus.models import read_transformer
from benchmarks.gpus.results import DATA, Result
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.workloads.step_options import InputSpec, StepOptions

_FOLDER = DATA / "neusight"
_DEVICES = {"NVIDIA_A100-SXM4-40GB": "A100-40", "NVIDIA_H100_80GB_HBM3": "H100"}
_GPUS = 4
_LAYOUTS = {"dp4": "dp=4", "tp4": "tp=4", "pp4_1": "pp=4,micro=1"}
_GOAL = 6.0


def judge_neusight(devices: Sequence[str] = ()) -> list[Result]:
    """All options, and each."""
    rows = [each for each in predict_neusight() if not devices or each.row.topology.device.name in devices]
    found = judge_predicted("NeuSight, 4 GPUs", "all", rows, most=_GOAL, note=_describe_published())
    for option in _LAYOUTS:
        own = [each for each in rows if each.row.group == option]
        found += judge_predicted("NeuSight, 4 GPUs", option, own)
    return found


@cache
def predict_neusight() -> tuple[PredictedRow, ...]:
    """The predicted rows."""
    return tuple(predict_rows(list_rows()))


def list_rows() -> list[SharedRow]:
    """The measured steps on four GPUs."""
    return list(_list())


def _list() -> Iterator[SharedRow]:
    rows: Any = pd.read_csv(_FOLDER / "e2e_labels.csv")
    for row in rows.itertuples():
        model, _mode, length, all_examples, *option = str(row.case).split("-")
        if not option or option[0] not in _LAYOUTS or row.device not in _DEVICES:
            continue
        batch = int(all_examples) // _GPUS if option[0] == "dp4" else int(all_examples)
        yield SharedRow(
            source="NeuSight",
            group=option[0],
            model=model,
            workload=f"{model} {length} {batch}",
            layout=parse_layout(_LAYOUTS[option[0]], gpus=_GPUS),
            topology=Topology(device=get_device(_DEVICES[row.device]), gpus_per_node=_GPUS),
            accumulation=1,
            seconds=float(row.e2e_latency) / 1e3,
            read=partial(_read, model, batch, int(length)),
            facts={"batch": str(batch)},
        )


def _read(model: str, batch: int, length: int) -> Workload:
    workload = read_transformer(
        _FOLDER / "DLmodel_configs" / f"{model}.json",
        "GPT2LMHeadModel",
        (InputSpec(shape=(batch, length), dtype="int64", high=100, name="input_ids"),),
        loss="logits",
        options=StepOptions(precision="fp32"),
    )
    if workload is None:
        raise ValueError(f"{model}: its code cannot be read")
    return drop_update(workload)


def _describe_published() -> str:
    """The mean error of NeuSight itself."""
    rows: Any = pd.read_csv(_FOLDER / "e2e_measured_and_peer_predictions.csv")
    rows = rows[rows.option.isin(_LAYOUTS) & rows.device.isin(_DEVICES)]
    errors = 100 * np.abs(rows.neusight_all_e2e_latency / rows.label_all_e2e_latency - 1)
    return f"NeuSight {errors.mean():.1f} of {len(errors)}"
