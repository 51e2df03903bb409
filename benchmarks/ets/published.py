"""Trains ETS as published, to its full number of epochs, and other methods of the literature, for the package.

Each is fitted on the families of the published split; the interval comes from the families that were left out, which
also give the error that is printed. Run it with ``python -m benchmarks.ets.published --gpu T4``; training continues
from its checkpoint in ``--folder``.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ets.traces import TEST_FAMILIES, TRAIN_FAMILIES, Trace, read_traces
from benchmarks.ets.weights import GPUS, NOTES
from foretell.core.devices import get_device
from foretell.core.intervals import QuantileSpread
from foretell.steps import get_method
from foretell.steps._base import StepModel
from foretell.steps.baselines import OperatorRegressionModel
from foretell.steps.ets import EtsModel
from foretell.steps.step_predictor import StepPredictor, find_method_file

METHODS = ("totals", "regression", "ets")
EPOCHS = 100
SMALL: dict[str, Any] = {"trees": 25, "learning_rate": 0.3, "min_leaf": 20}  # a file of 2 MB, hardly less accurate
_QUANTILES = 201
_WEIGHTS = Path(__file__).parents[2] / "src" / "foretell" / "steps" / "weights"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpu", choices=GPUS, default="T4")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--sample", type=int, default=25_000, help="windows of an epoch (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".foretell"), help="where checkpoints are kept")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    known = read_traces(arguments.gpu, TRAIN_FAMILIES)
    unseen = read_traces(arguments.gpu, TEST_FAMILIES)
    for method in arguments.methods.split(","):
        checkpoint = arguments.folder / f"ets-{arguments.gpu}"
        model = make_model(method, arguments.gpu, sample=arguments.sample, checkpoint=checkpoint)
        model.fit([trace.step for trace in known])
        ship(model, arguments.gpu, unseen)


def make_model(method: str, gpu: str, *, sample: int, checkpoint: Path) -> StepModel:
    if method == "regression":
        return OperatorRegressionModel(**SMALL)
    if method != "ets":
        return get_method(method).build(get_device(gpu))
    return EtsModel(epochs=EPOCHS, sample=sample, max_minutes=None, patience=None, checkpoint=checkpoint)


def ship(model: StepModel, gpu: str, unseen: list[Trace]) -> None:
    """Write the model with its errors on unseen families."""
    times = model.predict([trace.step.workload for trace in unseen])
    predicted = np.array([each.iteration_s for each in times])
    measured = np.array([trace.step.iteration_s for trace in unseen])
    clean = np.array([trace.clean for trace in unseen])
    errors = np.abs(predicted / measured - 1)
    device = get_device(gpu)
    spread = QuantileSpread.learn(np.log(measured / predicted).tolist(), count=_QUANTILES)
    predictor = StepPredictor(model, device=device, spreads={0: spread}, notes=NOTES)
    path = find_method_file(_WEIGHTS, device.name, model.kind)
    predictor.save(path)
    print(
        f"{model.kind} {gpu}: mean error {100 * errors.mean():.1f} % of {len(unseen)} iterations of unseen families, "
        f"clean {100 * errors[clean].mean():.1f} %, median {100 * np.median(errors):.1f} %; "
        f"{path.name}: {path.stat().st_size / 1e6:.2f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
