"""Recommendations for a configuration at a site, and job scripts."""

import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.advice.offers import WORKS, Choice, Ranking, build_market, choose, describe_nothing_works, rank
from foretell.advice.policy import Policy, choose_policy
from foretell.advice.site_lookup import LOCAL, find_site, list_allocations
from foretell.apps.command import build_launch
from foretell.apps.where import Where
from foretell.apps.workspace import directory_of, may_run, resolve_app
from foretell.core.app import App
from foretell.core.errors import InfeasibleError
from foretell.core.prediction import Offer, Recommendation, Rejection
from foretell.core.run import Allocation, Launch, Machine, RunSpec, State
from foretell.core.site import NodeType, Site
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.api import Configuration, load_predictor, specify
from foretell.runtimes.evidence import find_failures
from foretell.runtimes.predictor import DEFAULT_LEVEL, Predictor
from foretell.runtimes.run_table import MACHINE_ARCHITECTURE
from foretell.schedulers.shell_script import render_shell_script
from foretell.schedulers.slurm.job_array import render_job_script
from foretell.stores import RunReader
from foretell.stores.opening import StoreLike, reading_store

if TYPE_CHECKING:
    import pandas as pd

_Options: TypeAlias = list[tuple[NodeType, Allocation]]

_SHELL = "shell"
_ON_REQUEST = "--extrapolate allows it"
_NODE_COUNTS = (1, 2, 4, 8, 16)
_RECENT = 300  # runs that are searched for the nodes of a partition
MAX_EXTRAPOLATION = 4  # times the most cores, GPUs or nodes of the runs, or the fewest: beyond, only on request


def recommend(
    app: App | str | Path,
    configuration: Configuration,
    *,
    site: Site | str = LOCAL,
    policy: Policy | None = None,
    store: StoreLike | RunReader = None,
    level: float = DEFAULT_LEVEL,
    risk: float | None = None,
    retry_cost: float | None = None,
    extrapolate: bool = False,
) -> Recommendation:
    """All allocations of the site that the job could use, ranked, and the best one.

    Allocations more than ``MAX_EXTRAPOLATION`` times as large or as small as those of the runs, and nodes of another
    architecture, are considered only with ``extrapolate``. Runs without a known architecture have this machine's.

    Raises:
        InfeasibleError: if nothing works, or nothing within the policy's limits.
        NotFoundError: if there is no such app or site, or no model yet.
        SpecError: if the configuration does not fit the app, or is one that the app excludes.
    """
    with reading_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        predictor = load_predictor(known, opened)
        place = find_site(site) if isinstance(site, str) else site
        seen = _find_machines(known, place, opened)
        (spec,) = specify(known, configuration, allocation=Allocation())
        failures = find_failures(known.name, [spec.parameters], opened)
    architectures = _Architectures.of(predictor)
    listed = _list_options(place, predictor, architectures, extrapolate=extrapolate)
    options, rejections = _exclude(known, spec, place, *listed)
    if not options:
        raise InfeasibleError(describe_nothing_works(known.name, place, rejections))
    specs = [replace(spec, allocation=allocation) for _, allocation in options]
    table = predictor.tabulate(specs, [seen.get(node.partition) or machine_of(node) for node, _ in options])
    forecast = predictor.forecast(table, len(specs), level=level, risk=risk, retry_cost=retry_cost)
    choice = Choice(
        app=known.name,
        site=place,
        options=options,
        predictions=[
            replace(prediction, warnings=(*prediction.warnings, *architectures.list_warnings(node), *failures.values()))
            for prediction, (node, _) in zip(
                predictor.explain(specs, table, forecast, level=level), options, strict=True
            )
        ],
        measured=[
            not distance and architectures.include(node)
            for distance, (node, _) in zip(forecast.extrapolation, options, strict=True)
        ],
        risk=lambda walltime_s, memory: predictor.risk(forecast, walltime_s=walltime_s, memory=memory),
    )
    return choose(choice, policy or choose_policy(), rejections=rejections)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPairs:
    """Configurations (rows) on allocations (columns), ranked."""

    options: Sequence[tuple[NodeType, Allocation]]
    time_s: NDArray[np.float64]
    longest_s: NDArray[np.float64]
    ranking: Ranking

    def best(self) -> "pd.DataFrame":
        """The best allocation of each configuration, with its time and cost; no row where nothing works."""
        ranking, first = self.ranking, self.ranking.order[:, 0]
        rows = np.flatnonzero(ranking.verdict[np.arange(len(first)), first] == WORKS)
        at = rows, first[rows]
        offers = [self.options[option][1] for option in first[rows]]
        from foretell.core.table_files import build_frame

        return build_frame(
            {
                "configuration": rows,
                "node_type": [allocation.node_type for allocation in offers],
                "cores": [allocation.cores for allocation in offers],
                "gpus": [allocation.gpus for allocation in offers],
                "elapsed_s": self.time_s[at],
                "elapsed_s_high": self.longest_s[at],
                "walltime_s": ranking.walltime_s[at],
                "memory_bytes": ranking.memory[at],
                "cost": ranking.cost[at],
                "allowed": ranking.allowed[at],
            }
        )


def rank_pairs(
    predictor: Predictor,
    specs: Sequence[RunSpec],
    site: Site,
    *,
    policy: Policy | None = None,
    extrapolate: bool = False,
) -> RankedPairs:
    """Rank every allocation of a site for each of many configurations at once."""
    architectures = _Architectures.of(predictor)
    options, _ = _list_options(site, predictor, architectures, extrapolate=extrapolate)
    forecast = predictor.forecast_pairs(specs, [(allocation, machine_of(node)) for node, allocation in options])
    shape = len(specs), len(options)
    nodes = [node for node, _ in options]
    memory = forecast.memory
    time_s, longest_s = forecast.elapsed.value.reshape(shape), forecast.elapsed.high.reshape(shape)
    shortest_s = forecast.elapsed.low.reshape(shape)
    ranking = rank(
        build_market(options),
        time_s=time_s,
        shortest_s=shortest_s,
        longest_s=longest_s,
        walltime_s=forecast.elapsed.request.reshape(shape),
        memory_value=memory.value.reshape(shape) if memory else np.zeros(shape),
        memory=memory.request.reshape(shape) if memory else np.zeros(shape),
        trusted=(forecast.extrapolation == 0).reshape(shape)
        & np.array([*map(architectures.include, nodes)], dtype=bool),
        policy=policy or choose_policy(),
    )
    return RankedPairs(options=options, time_s=time_s, longest_s=longest_s, ranking=ranking)


def render_script(
    app: App | str | Path, offer: Offer, site: Site, *, store: StoreLike | RunReader = None, account: str | None = None
) -> str:
    """The job script for an offer: for ``sbatch``, or for a shell if there is no scheduler.

    The command of an app that is only named is left out if others can write to the store, as it may be theirs.
    """
    with reading_store(store, directory_of(app), or_empty=True) as opened:
        known = resolve_app(app, opened)
        is_own = may_run(app, opened)
    spec = RunSpec(app=known.name, parameters=offer.prediction.parameters, allocation=offer.allocation)
    launch = _launch(known, spec) if is_own else _leave_out_command(known)
    if site.scheduler == _SHELL:
        return render_shell_script(launch, allocation=offer.allocation)
    node = site.find_node_type(offer.allocation.node_type)
    cluster = node.cluster if node and node.cluster else site.name
    options = {name: value.replace("{cluster}", cluster) for name, value in site.script.items()}
    own = options.pop("account", None)  # the user may name another
    return render_job_script(
        launch,
        job_name=known.name,
        allocation=offer.allocation,
        account=account or own,
        options=options,
        without=site.refuses,
    )


def _launch(app: App, spec: RunSpec) -> Launch:
    if app.command or app.shell is not None:
        return build_launch(app, spec, run_directory=Path(app.directory) / f"{app.name}-job")
    return _leave_out_command(app)


def _leave_out_command(app: App) -> Launch:
    return Launch(argv=("echo", f"put the command of {app.name} here"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Architectures:
    """The architectures of the runs; ``assumed`` if no run names one, as after ``runs import``."""

    names: tuple[str, ...]
    assumed: bool

    @classmethod
    def of(cls, predictor: Predictor) -> "_Architectures":
        named = predictor.measured_levels(MACHINE_ARCHITECTURE)
        if named:
            return cls(names=named, assumed=False)
        here = platform.machine()
        return cls(names=(here,) if here else (), assumed=True)

    def include(self, node: NodeType) -> bool:
        return not self.names or not node.architecture or node.architecture in self.names

    def describe(self) -> str:
        names = " and ".join(self.names)
        return (
            f"the runs name none, so {names} is assumed, as here" if self.assumed else f"the runs were made on {names}"
        )

    def list_warnings(self, node: NodeType) -> tuple[PredictionWarning, ...]:
        """For what the models cannot know, as no run names an architecture."""
        if self.include(node) or not self.assumed:
            return ()
        text = f"{node.architecture} nodes; {self.describe()}"
        return (build_warning("other-architecture", text, architecture=node.architecture, runs=list(self.names)),)


def _list_options(
    site: Site, predictor: Predictor, architectures: _Architectures, *, extrapolate: bool
) -> tuple[_Options, list[Rejection]]:
    """The allocations to rank. A resource that never varied in the runs stays as it was."""
    cores, gpus, nodes = (predictor.measured_counts(name) for name in ("cores", "gpus", "nodes"))
    listed = list_allocations(site, cores=cores, gpus=gpus, nodes=nodes or _NODE_COUNTS)
    too_far = {} if extrapolate else {option: _why_too_far(predictor, architectures, *option) for option in listed}
    options = [option for option in listed if not too_far.get(option)]
    served = {allocation.node_type for _, allocation in options}
    rejections = [
        Rejection(
            site=site.name,
            allocation=Allocation(cores=node.cores, gpus=node.gpus, partition=node.partition, node_type=node.name),
            reason=next((why for (other, _), why in too_far.items() if why and other.name == node.name), "")
            or _why_not(node, cores, gpus),
        )
        for node in site.node_types
        if node.name not in served
    ]
    return options, rejections


def _why_too_far(predictor: Predictor, architectures: _Architectures, node: NodeType, allocation: Allocation) -> str:
    """Why an allocation cannot be predicted from the runs; empty if it can."""
    if not architectures.include(node):
        return f"{node.architecture} nodes; {architectures.describe()} ({_ON_REQUEST})"
    for name in ("cores", "gpus", "nodes"):
        low, high = predictor.measured_range(name)
        asked = getattr(allocation, name)
        if asked > MAX_EXTRAPOLATION * high or asked * MAX_EXTRAPOLATION < low:
            return f"{asked} {name}; the runs had {low:g} to {high:g} ({_ON_REQUEST})"
    return ""


def _exclude(
    app: App, spec: RunSpec, site: Site, options: _Options, rejections: list[Rejection]
) -> tuple[_Options, list[Rejection]]:
    """Without the allocations that the app's ``where`` excludes, which are rejected.

    Raises:
        SpecError: if the parameters alone are excluded.
    """
    where = Where(app)
    where.check_parameters(spec)
    broken = [where.find_broken(spec.parameters, allocation) for _, allocation in options]
    excluded = [
        Rejection(site=site.name, allocation=allocation, reason=f"the app file excludes it: where {condition}")
        for (_, allocation), condition in zip(options, broken, strict=True)
        if condition is not None
    ]
    allowed = [option for option, condition in zip(options, broken, strict=True) if condition is None]
    return allowed, [*rejections, *excluded]


def _why_not(node: NodeType, cores: Collection[int] | None, gpus: Collection[int] | None) -> str:
    if cores is not None and min(cores) > node.cores:
        return f"runs used {min(cores)} cores; a node has {node.cores}"
    if gpus is not None and 0 in gpus and node.gpus:
        return "no run used a GPU, and these nodes are for jobs with GPUs"
    return f"runs used {_render(gpus)} GPUs; a node has {node.gpus}"


def _render(counts: Collection[int] | None) -> str:
    return "several" if counts is None else " or ".join(map(str, sorted(counts)))


def _find_machines(app: App, site: Site, store: RunReader) -> dict[str, Machine]:
    """Nodes of partitions whose CPU the site does not name, from the app's own runs there."""
    unnamed = {node.partition: node for node in site.node_types if not node.cpu_model}
    if not unnamed:
        return {}
    runs = store.runs(app.name, states=[State.COMPLETED], limit=_RECENT, newest_first=True, version=app.version)
    ran_on = {run.spec.allocation.partition: run.machine for run in reversed(runs)}
    return {
        partition: replace(machine_of(node), cpu_model=machine.cpu_model, cpu_mhz=machine.cpu_mhz, extra=machine.extra)
        for partition, node in unnamed.items()
        if (machine := ran_on.get(partition)) is not None
    }


def machine_of(node: NodeType) -> Machine:
    """A node of this type, as a machine that runs were made on."""
    return Machine(
        cpu_model=node.cpu_model,
        cores=node.cores,
        cpu_mhz=node.cpu_mhz,
        memory_bytes=node.memory_bytes,
        gpu_model=node.gpu_model,
        gpus=node.gpus,
        extra={**({"architecture": node.architecture} if node.architecture else {}), **node.bench},
    )
