"""Training steps of image models on K80, M60 and T4, as the authors of Profet measured them in TensorFlow 2.

Predicted from torchvision's models of the same names: another framework, and other last layers at sizes other than 224.
So the prediction is as far off as that of a user who describes a network only roughly. AlexNet is left out: what was
measured takes ten times as long as torchvision's, so that it must be another network.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pandas as pd

from benchmarks.gpus.models import read_torchvision
from benchmarks.gpus.results import DATA
from benchmarks.gpus.step_labels import StepLabel
from foretell.workloads.step_options import StepOptions

DEVICES = {"g3s.xlarge": "M60", "g4dn.xlarge": "T4", "p2.xlarge": "K80"}
MODELS = {
    "MobileNetV2": "mobilenet_v2",
    "ResNet18": "resnet18",
    "ResNet34": "resnet34",
    "ResNet50": "resnet50",
    "VGG11": "vgg11",
    "VGG13": "vgg13",
    "VGG16": "vgg16",
    "VGG19": "vgg19",
}
_FAMILIES = {"MobileNetV2": "mobilenet"}
_SIZES = (64, 128, 224)
_BATCHES = (16, 64, 256)


@cache
def list_labels() -> tuple[StepLabel, ...]:
    """Medians over the repetitions, of some sizes and batches."""
    return tuple(_list())


def _list() -> Iterator[StepLabel]:
    rows: Any = pd.read_csv(DATA / "profet" / "training_latency.csv")
    rows["size"] = rows.dataset.str.removesuffix("dataset").astype(int)
    rows = rows[rows.model.isin(MODELS) & rows["size"].isin(_SIZES) & rows.batchsize.isin(_BATCHES)]
    medians = rows.groupby(["instance_name", "model", "size", "batchsize"]).batch_latency.median()
    for (instance, model, size, batch), seconds in medians.items():
        options = StepOptions(optimizer="sgd", implementation="for-loop", precision="fp32")
        yield StepLabel(
            source="profet",
            model=f"{model} {size}",
            family=_FAMILIES.get(model, model.rstrip("0123456789").lower()),
            device=DEVICES[instance],
            mode="training",
            precision="fp32",
            batch=int(batch),
            seconds=float(seconds),
            read=partial(read_torchvision, MODELS[model], batch=int(batch), size=int(size), options=options),
        )
