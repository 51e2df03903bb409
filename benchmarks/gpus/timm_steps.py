"""Steps of the image models of timm, as its authors measured them on consumer GPUs.

Inference was measured with timm's own norms in half precision (``benchmark.py --fast-norm``). The options are not
published, but the times show it: where this changes a step, errors without any correction have a median of 9 to 14 %
in either half of the families, on the RTX 3090 and the 4090, and of 21 to 31 % with norms in single precision.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np
import pandas as pd

from benchmarks.capture import declare_torchvision
from benchmarks.gpus.models import read_timm
from benchmarks.gpus.results import DATA
from benchmarks.gpus.step_labels import StepLabel
from foretell.core.workload import Workload
from foretell.workloads.step_options import StepOptions

A_FAMILY = 4  # models of each
_SEED = 0
_MOST_FILES = 4
_ROUNDING = 0.0075  # of millions of parameters
# Device and file. The mixed precision is float16 in all of them, the layout is that of PyTorch.
INFERENCE = (
    ("RTX3090", "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"),
    ("RTX4090", "benchmark-infer-amp-nchw-pt291-cu128-4090.csv"),
    ("RTXPRO6000-MaxQ", "benchmark-infer-amp-nchw-pt291-cu130-pro6000maxq.csv"),
)
TRAINING = (("RTX3090", "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"),)


@cache
def list_labels(a_family: int = A_FAMILY) -> tuple[StepLabel, ...]:
    """Measured steps of some models of each family."""
    found = [label for mode, sources in (("infer", INFERENCE), ("train", TRAINING)) for label in _list(mode, sources)]
    chosen = _choose(found, a_family)
    return tuple(label for label in found if label.model in chosen)


def _choose(labels: Sequence[StepLabel], a_family: int) -> set[str]:
    """Models that were measured most often, drawn at random among equals."""
    random = np.random.default_rng(_SEED)
    counts = pd.Series([label.model for label in labels]).value_counts()
    families = {label.model: label.family for label in labels}
    chosen: set[str] = set()
    for family in sorted(set(families.values())):
        models = sorted(model for model, one in families.items() if one == family)
        models = random.permutation(models).tolist()
        chosen |= set(sorted(models, key=lambda model: -min(counts[model], _MOST_FILES))[:a_family])
    return chosen


def _list(mode: str, sources: Sequence[tuple[str, str]]) -> Iterator[StepLabel]:
    families = _find_families()
    for device, file in sources:
        rows = pd.read_csv(DATA / "timm_benchmarks" / file).drop_duplicates("model")
        columns = (
            "model",
            *(f"{mode}_{name}" for name in ("batch_size", "img_size", "samples_per_sec")),
            "param_count",
        )
        for model, batch, size, rate, count in rows[list(columns)].itertuples(index=False):
            if model in families:
                words = "inference" if mode == "infer" else "training"
                label = StepLabel(
                    source="timm",
                    model=model,
                    family=families[model],
                    device=device,
                    mode=words,
                    precision="fp16",
                    batch=int(batch),
                    seconds=float(batch / rate),
                    read=partial(_read, model, (int(batch), int(size)), words, float(count)),
                )
                yield label


def _read(model: str, shape: tuple[int, int], mode: str, millions: float) -> Workload | None:
    """Branches were fused where the measured model has fewer parameters."""
    options = StepOptions(precision="fp16", implementation="for-loop", mode=mode)
    read = partial(read_timm, model, batch=shape[0], size=shape[1], options=options, fast_norm=mode == "inference")
    workload = read()
    if workload is None or mode == "training" or abs(workload.parameters / 1e6 - millions) < _ROUNDING:
        return workload
    return read(deployed=True)


@cache
def _find_families() -> dict[str, str]:
    """The module of each model."""
    declare_torchvision()
    from timm.models import _registry

    return dict(_registry._model_to_module)
