"""Steps of the image models of timm, as its authors measured them on consumer GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.gpus.models import read_timm
from benchmarks.gpus.results import DATA
from foretell.core.workload import Workload
from foretell.workloads.step_options import StepOptions

A_FAMILY = 4  # models of each
_SEED = 0
# Device, file, layout. The mixed precision is float16 in all of them.
INFERENCE = (
    ("RTX 3090", "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv", "no"),
    ("RTX 4090", "benchmark-infer-amp-nchw-pt291-cu128-4090.csv", "no"),
    ("RTX PRO 6000 Max-Q", "benchmark-infer-amp-nchw-pt291-cu130-pro6000maxq.csv", "no"),
)
TRAINING = (("RTX 3090", "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv", "no"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A measured step of a model of timm."""

    model: str
    family: str
    device: str
    mode: str
    batch: int
    size: int
    seconds: float

    def read(self) -> Workload | None:
        """Its operators."""
        options = StepOptions(precision="fp16", implementation="for-loop")
        return read_timm(self.model, batch=self.batch, size=self.size, options=options, mode=self.mode)


@cache
def list_labels(a_family: int = A_FAMILY) -> tuple[Label, ...]:
    """Measured steps of some models of each family."""
    found = [label for mode, sources in (("infer", INFERENCE), ("train", TRAINING)) for label in _list(mode, sources)]
    chosen = _choose(found, a_family)
    return tuple(label for label in found if label.model in chosen)


def _choose(labels: list[Label], a_family: int) -> set[str]:
    """Models that were measured most often, drawn at random among equals."""
    random = np.random.default_rng(_SEED)
    counts = pd.Series([label.model for label in labels]).value_counts()
    families = {label.model: label.family for label in labels}
    chosen: set[str] = set()
    for family in sorted(set(families.values())):
        models = sorted(model for model, one in families.items() if one == family)
        models = random.permutation(models).tolist()
        chosen |= set(sorted(models, key=lambda model: -min(counts[model], 4))[:a_family])
    return chosen


def _list(mode: str, sources: tuple[tuple[str, str, str], ...]) -> Iterator[Label]:
    families = _find_families()
    for device, file, _layout in sources:
        rows = pd.read_csv(DATA / "timm_benchmarks" / file).drop_duplicates("model")
        columns = ("model", *(f"{mode}_{name}" for name in ("batch_size", "img_size", "samples_per_sec")))
        for model, batch, size, rate in rows[list(columns)].itertuples(index=False):
            if model in families:
                yield Label(
                    model=model,
                    family=families[model],
                    device=device,
                    mode="inference" if mode == "infer" else "training",
                    batch=int(batch),
                    size=int(size),
                    seconds=float(batch / rate),
                )


@cache
def _find_families() -> dict[str, str]:
    from benchmarks.capture import declare_torchvision

    declare_torchvision()
    from timm.models import _registry

    return dict(_registry._model_to_module)
