"""Renders observed jobs as text and JSON."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group
from rich.table import Table
from rich.text import Text

from foretell.core.observation import Cycle, CycleSearch, Observation, Resource, Series
from foretell.core.render.phrases import render_percent
from foretell.core.render.tables import BAD, HEADING, QUIET, add_cells, build_line, build_table, build_warnings, stack
from foretell.core.serialization import to_record
from foretell.core.units import render_duration, render_rate
from foretell.core.workload import Floats

_SHOWN_PERIODS = 8  # in a time line

ORDER = (Resource.COMPUTE, Resource.MEMORY, Resource.TRANSMIT, Resource.RECEIVE)


def list_resources(observation: Observation) -> list[Resource]:
    """The sampled resources, in the order of reports."""
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
    return renderers.get(resource, render_rate)(amount)


def _render_share(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def find_window(observation: Observation) -> tuple[float, float]:
    """The time to show: some periods from the middle of the samples, or all of them without a cycle."""
    whole_s = observation.recorded.elapsed_s
    periods = [found.cycle.period_s for found in observation.cycles.values() if found.cycle is not None]
    if not periods:
        return 0.0, whole_s
    bursts = max((found.bursts for found in observation.cycles.values()), key=len)
    begin_s = bursts[len(bursts) // 2][0] - 0.1 * max(periods)
    width_s = min(_SHOWN_PERIODS * max(periods), whole_s)
    begin_s = max(0.0, min(begin_s, whole_s - width_s))
    return begin_s, begin_s + width_s


_LARGEST_WIDTH, _LABEL = 100, 15
_BARS = " ▁▂▃▄▅▆▇█"
_BURST, _IDLE = "━", " "


def render_observation(observation: Observation) -> Group:
    """The cycle of each resource, or why it has none; a time line with bursts marked; warnings."""
    found = {each: observation.cycles[each] for each in list_resources(observation)}
    with_cycle = {each: search.cycle for each, search in found.items() if search.cycle is not None}
    return stack(
        build_line(observation.subject, HEADING),
        build_line(_describe_samples(observation), QUIET),
        _describe_end(observation),
        _build_cycles(with_cycle, observation) if with_cycle else None,
        *(build_line(line) for line in _list_without(found, observation)),
        _TimeLine(found=found, observation=observation),
        *build_warnings(observation.warnings),
    )


def _describe_samples(observation: Observation) -> str:
    recorded = observation.recorded
    count = len(recorded.cpu.values)
    samples = f"{'1 sample' if count == 1 else f'{count:,} samples'}, one every {1000 * recorded.interval_s:g} ms"
    processes = "1 process" if recorded.processes == 1 else f"{recorded.processes:,} processes"
    sampled = f"{processes}, sampled for {render_duration(recorded.elapsed_s)}: {samples}"
    if count == 1:  # then starting the sampler dominates its CPU time
        return sampled
    return f"{sampled}; sampling took {render_percent(100 * recorded.sampling_cpu_s / recorded.elapsed_s)} of a core"


def _describe_end(observation: Observation) -> Text | None:
    code = observation.exit_code
    if not code:
        return None
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    return build_line(f"It failed ({how}); the figures below are until then.", BAD)


def _build_cycles(cycles: dict[Resource, Cycle], observation: Observation) -> Table:
    numbers = ("Burst", "Idle", "Period", "In bursts", "In idles", "Busy", "Bursts")
    table = build_table("Resource", *numbers, numbers=numbers)
    for resource, cycle in cycles.items():
        add_cells(
            table,
            name_resource(resource, observation),
            _render_time(cycle.burst_s),
            _render_time(cycle.idle_s),
            _render_time(cycle.period_s),
            render_amount(resource, cycle.burst_amount, observation),
            render_amount(resource, cycle.idle_amount, observation),
            render_percent(100 * cycle.share),
            f"{cycle.bursts:,}",
        )
    table.columns[0].no_wrap = True
    return table


def _render_time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else render_duration(seconds)


def _list_without(found: dict[Resource, CycleSearch], observation: Observation) -> Iterator[str]:
    for resource, search in found.items():
        if search.cycle is None:
            mean = render_amount(resource, observation.recorded.series[resource].mean, observation)
            yield f"{name_resource(resource, observation)}: no cycle found, {search.why}; {mean} on average"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeLine:
    """For each resource a line with its amount and one with its bursts, as wide as the terminal."""

    found: Mapping[Resource, CycleSearch]
    observation: Observation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if not any(self.observation.recorded.series[each].values.any() for each in self.found):
            return
        begin_s, end_s = find_window(self.observation)
        columns = max(min(options.max_width, _LARGEST_WIDTH) - _LABEL, 1)
        edges_s = np.linspace(begin_s, end_s, columns + 1)
        yield build_line(f"Time line of {_render_time(end_s - begin_s)}, from {render_duration(begin_s)} on", HEADING)
        for resource, search in self.found.items():
            series = self.observation.recorded.series[resource]
            if series.values.any():
                label = name_resource(resource, self.observation).ljust(_LABEL)
                yield Text.assemble((label, QUIET), _draw_height(series, edges_s))
            if search.cycle is not None:
                yield Text.assemble(" " * _LABEL, (_draw_bursts(search, edges_s), "green"))


def _draw_height(series: Series, edges_s: Floats) -> str:
    rates = average(series, edges_s)
    top = max(float(rates.max()), 1e-300)
    return "".join(_BARS[int(np.ceil(rate / top * (len(_BARS) - 1) - 0.5))] for rate in rates)


def average(series: Series, edges_s: Floats) -> Floats:
    """Mean rates between times."""
    used = np.concatenate(([0.0], np.cumsum(series.values * np.diff(series.times_s))))
    return np.maximum(np.diff(np.interp(edges_s, series.times_s, used)), 0.0) / np.diff(edges_s)


def _draw_bursts(search: CycleSearch, edges_s: Floats) -> str:
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    begins = np.array([begin for begin, _ in search.bursts])
    ends = np.array([end for _, end in search.bursts])
    inside = np.searchsorted(begins, middles_s, side="right") > np.searchsorted(ends, middles_s, side="right")
    return "".join(_BURST if each else _IDLE for each in inside)


def build_observation_record(observation: Observation) -> dict[str, Any]:
    """Seconds, cores or shares of a GPU, bytes a second; without a ``cycle``, ``why`` has the reason."""
    recorded = observation.recorded
    return {
        "subject": observation.subject,
        "exit_code": observation.exit_code,
        "period_s": observation.period_s,
        "resources": {
            resource.value: {
                "mean": recorded.series[resource].mean,
                "cycle": None if found.cycle is None else {**to_record(found.cycle), "share": found.cycle.share},
                "why": found.why,
            }
            for resource, found in observation.cycles.items()
        },
        "elapsed_s": recorded.elapsed_s,
        "interval_s": recorded.interval_s,
        "samples": len(recorded.cpu.values),
        "sampling_share": recorded.sampling_cpu_s / recorded.elapsed_s,
        "processes": recorded.processes,
        "gpus": recorded.gpus,
        "gpu_memory_bytes": None if recorded.gpu_memory is None else float(recorded.gpu_memory.values.max()),
        "load": to_record(recorded.load),
        "disturbed": recorded.load.disturbs,
        "warnings": to_record(observation.warnings),
        "run": observation.run_id,
        "file": observation.path,
    }
