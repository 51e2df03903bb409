from dataclasses import replace

import numpy as np
import pytest

from foretell.core.observation import Load, Recorded, Resource, Series
from foretell.core.warning import build_warning
from foretell.measure.watch import parse_recorded, render_recorded

TIMES_S = np.array([0.0, 0.02, 0.041])


def build_recorded() -> Recorded:
    cpu = Series(times_s=TIMES_S, values=np.array([0.5, 1.0]))
    sent = Series(times_s=TIMES_S, values=np.array([1234567.0, 0.0]))
    return Recorded(
        started_s=12.5,
        interval_s=0.02,
        series={Resource.COMPUTE: cpu, Resource.TRANSMIT: sent, Resource.RECEIVE: sent},
        cpu=cpu,
        load=Load(others=0.1, stolen=0.2, cores=4, by={"sh (7)": 0.1}),
        processes=2,
        sampling_cpu_s=0.01,
        warnings=(build_warning("no-gpu", "No GPU was used."),),
    )


def test_samples_survive_writing_and_reading() -> None:
    recorded = build_recorded()
    again = parse_recorded(render_recorded(recorded))
    assert "\n" not in render_recorded(recorded)
    assert (again.load, again.warnings, again.processes, again.gpus) == (recorded.load, recorded.warnings, 2, 0)
    for resource, series in recorded.series.items():
        assert again.series[resource].values == pytest.approx(series.values)
        assert again.series[resource].times_s == pytest.approx(TIMES_S)
    assert again.gpu_memory is None


def test_memory_of_gpus_is_stored() -> None:
    recorded = build_recorded()
    again = parse_recorded(render_recorded(replace(recorded, gpus=1, gpu_memory=recorded.cpu)))
    assert again.gpu_memory is not None
    assert again.gpu_memory.values == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"times_s": [0]}'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        parse_recorded(text)
