"""``python -m benchmarks.ets.weights``: learn from all recorded traces of each GPU what ships with the product."""

from pathlib import Path

from benchmarks.ets.traces import read_traces
from foretell.core.devices import get_device
from foretell.steps.step_predictor import SUFFIX, fit_step_predictor

GPUS = ("T4", "2080Ti")
NOTES = (
    "Learned from iterations that were recorded under a profiler (ETS; torch 1.13, single precision), which slows the "
    "host's launches: without one, the framework's overhead is smaller. The time the device is busy carries over.",
)


def main() -> None:
    folder = Path(__file__).parents[2] / "src" / "foretell" / "models" / "operators" / "weights"
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
