"""How what a job consumes reads, the same in the terminal and in plots."""

from collections.abc import Callable, Mapping

from foretell.entities.consumption import Resource
from foretell.entities.observation import Observation
from foretell.entities.units import render_bytes

_SHOWN_PERIODS = 8  # of what was seen, in a time line

ORDER = (Resource.COMPUTE, Resource.MEMORY, Resource.TRANSMIT, Resource.RECEIVE)


def list_resources(observation: Observation) -> list[Resource]:
    """Those that were looked at, in the order of reports."""
    return [resource for resource in ORDER if resource in observation.recorded.series]


def name_resource(resource: Resource, observation: Observation) -> str:
    """``compute (CPU)``, ``transmit``."""
    device = "GPU" if observation.recorded.gpus else "CPU"
    titles = {Resource.COMPUTE: f"compute ({device})", Resource.MEMORY: "memory (GPU)"}
    return titles.get(resource, resource.value)


def render_amount(resource: Resource, amount: float, observation: Observation) -> str:
    """``1.02 cores``, ``87 %`` of a GPU, ``11.2 MB/s``."""
    renderers: Mapping[Resource, Callable[[float], str]] = {
        Resource.COMPUTE: _render_share if observation.recorded.gpus else "{:.2f} cores".format,
        Resource.MEMORY: _render_share,
    }
    return renderers.get(resource, _render_rate)(amount)


def _render_share(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def _render_rate(bytes_per_s: float) -> str:
    return f"{render_bytes(bytes_per_s)}/s"


def find_window(observation: Observation) -> tuple[float, float]:
    """From when to when to show: some periods from the middle of what was seen, all of it where there is no cycle."""
    whole_s = observation.recorded.elapsed_s
    periods = [found.cycle.period_s for found in observation.cycles.values() if found.cycle is not None]
    if not periods:
        return 0.0, whole_s
    bursts = max((found.bursts for found in observation.cycles.values()), key=len)
    begin_s = bursts[len(bursts) // 2][0] - 0.1 * max(periods)
    width_s = min(_SHOWN_PERIODS * max(periods), whole_s)
    begin_s = max(0.0, min(begin_s, whole_s - width_s))
    return begin_s, begin_s + width_s
