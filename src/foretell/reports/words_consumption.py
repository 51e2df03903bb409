"""How what distributed training will consume reads, the same in the terminal, in plots and as JSON."""

from collections.abc import Callable, Mapping

from foretell.entities.consumption import ConsumptionPrediction, Resource, Setting, Strategy
from foretell.entities.outlook import Change, Outlook
from foretell.entities.prediction import Estimate
from foretell.entities.units import render_link, render_rate
from foretell.reports.words import count

_LITTLE, _MUCH = 0.1, 0.25  # of an iteration: what waits less hardly limits it, or is not what limits it most
_LEAST = 0.005  # of an iteration: what saves less saves nothing


def name_resource(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """``compute (CPU)``, ``transmit``."""
    device = "GPU" if prediction.gpu else "CPU"
    return {Resource.COMPUTE: f"compute ({device})", Resource.MEMORY: "memory (GPU)"}.get(resource, resource.value)


def name_unit(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """What amounts of a resource are counted in."""
    if resource in (Resource.TRANSMIT, Resource.RECEIVE):
        return "bytes/s"
    return "cores" if resource is Resource.COMPUTE and not prediction.gpu else "share"


def render_amount(resource: Resource, amount: float, prediction: ConsumptionPrediction) -> str:
    """``0.97 cores``, ``87 %`` of a GPU, ``11.2 MB/s``."""
    renderers: Mapping[str, Callable[[float], str]] = {
        "bytes/s": render_rate,
        "cores": "{:.2f} cores".format,
        "share": lambda share: f"{100 * share:.0f} %",
    }
    return renderers[name_unit(resource, prediction)](amount)


def explain_missing(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """Why nothing is told of a resource."""
    if resource is Resource.MEMORY:
        return "not told: no training on a GPU was measured, and nothing stands in for it on a CPU"
    if resource is not Resource.COMPUTE and not prediction.setting.communicates:
        return "none: one worker has nobody to talk to"
    return "not told: it could not be measured in the trainings that were learned from"


def describe_setting(setting: Setting) -> str:
    """``4 workers, all-reduce, links of 10 Gb/s, T4``."""
    workers = count(setting.workers, "worker")
    if setting.strategy is Strategy.ALLREDUCE:
        how = f"{workers}, all-reduce"
    else:
        how = f"{workers} and {count(setting.servers, 'server')}{'' if setting.synchronous else ', asynchronous'}"
    link = setting.link_bytes_per_s
    return f"{how}, {'no link named' if link is None else f'links of {render_link(link)}'}, {setting.device}"


def render_change(change: Change, prediction: ConsumptionPrediction) -> str:
    """The value of what is changed: ``10 Gb/s``, ``4``."""
    value = find_value(change, prediction)
    return render_link(value) if change is Change.LINK else f"{value:,.0f}"


def find_value(change: Change, prediction: ConsumptionPrediction) -> float:
    """The value of what is changed, as a number."""
    setting = prediction.setting
    return {
        Change.LINK: setting.link_bytes_per_s or 0.0,
        Change.WORKERS: setting.workers,
        Change.SERVERS: setting.servers,
        Change.BATCH: prediction.workload.batch,
    }[change]


def is_unsure(told: ConsumptionPrediction, asked: ConsumptionPrediction) -> bool:
    """Whether a change leads outside of what was measured."""
    return bool(set(told.doubts) - set(asked.doubts))


def is_asked(told: ConsumptionPrediction, outlook: Outlook) -> bool:
    """Whether nothing is changed."""
    asked = outlook.asked
    return (told.setting, told.workload.batch) == (asked.setting, asked.workload.batch)


def find_busy_share(resource: Resource, prediction: ConsumptionPrediction) -> float | None:
    """Of an iteration, that a resource is in a burst."""
    cycle = prediction.cycles.get(resource)
    return None if cycle is None else cycle.burst_s.value / (cycle.burst_s.value + cycle.idle_s.value)


def render_short_interval(estimate: Estimate, render: Callable[[float], str]) -> str:
    """``7.29 - 15.8 ms``: the unit once, where both bounds have the same."""
    low, high = render(estimate.low), render(estimate.high)
    number, _, unit = low.partition(" ")
    return f"{number if unit and high.endswith(f' {unit}') else low} - {high}"


def render_share(share: float) -> str:
    """``62 %``, never a small one as none: ``< 1 %``."""
    return "< 1 %" if 0 < share < _LEAST else f"{100 * share:.0f} %"


# What limits


def describe_limit(outlook: Outlook) -> str:
    """What limits a training, and what would help, in a sentence or two."""
    if not outlook.asked.setting.communicates:
        return "Compute is the limit: there is no communication to wait for."
    more = _find_saving(outlook, Change.SERVERS, further=1)
    further = "" if more is None else f" One more server {_render_saving(more)}."
    return f"{_describe_cause(outlook.asked.exposed_share, _find_saving(outlook, Change.LINK, factor=2.0))}{further}"


def _describe_cause(waits: float, saved: float | None) -> str:
    if waits < _MUCH:
        mostly = "" if waits < _LITTLE else ", mostly"
        cause = f"Compute is the limit{mostly}: {render_share(waits)} of an iteration waits for communication"
    elif saved is None or saved < _LITTLE:
        but = "" if saved is None else ", but not the link"
        cause = f"Communication is the limit{but}: {render_share(waits)} of an iteration waits for it"
    else:
        cause = f"The link is the limit: {render_share(waits)} of an iteration waits for it"
    return f"{cause}." if saved is None else f"{cause}; twice the link {_render_saving(saved)}."


def _render_saving(saved: float) -> str:
    return f"saves {100 * saved:.0f} %" if saved >= _LEAST else "saves nothing"


def _find_saving(outlook: Outlook, change: Change, *, factor: float = 1.0, further: int = 0) -> float | None:
    """The share of an iteration that a change saves; ``None`` if it was not told."""
    wanted = factor * find_value(change, outlook.asked) + further
    told = [each for each in outlook.others.get(change, ()) if find_value(change, each) == wanted]
    return 1 - told[0].iteration.value / outlook.asked.iteration.value if told else None
