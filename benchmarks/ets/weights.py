"""Fits the models that ship with the package, on all recorded traces of each GPU.

Run it with ``python -m benchmarks.ets.weights``.
"""

from pathlib import Path

from benchmarks.ets.traces import read_traces
from foretell.core.devices import get_device
from foretell.steps.step_predictor import SUFFIX, fit_step_predictor

GPUS = ("T4", "2080Ti")
NOTES = (
    "Fitted on iterations recorded under a profiler (ETS; torch 1.13, single precision), which slows the launches of "
    "the host: without it, the overhead of the framework is smaller. The time the device is busy is the same.",
)


def main() -> None:
    folder = Path(__file__).parents[2] / "src" / "foretell" / "steps" / "weights"
    for gpu in GPUS:
        traces = read_traces(gpu)
        device = get_device(gpu)
        predictor = fit_step_predictor(
            [trace.step for trace in traces], device, groups=[trace.family for trace in traces], notes=NOTES
        )
        path = folder / f"{device.name}{SUFFIX}"
        predictor.save(path)
        print(f"{path.name}: {len(traces)} traces, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
