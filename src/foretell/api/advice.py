"""From a configuration and a site to offers, the pick, and its job script."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.advisor.choose import Choice, choose
from foretell.advisor.policy import Policy, choose_policy
from foretell.advisor.ranking import WORKS, Ranking, build_market, rank
from foretell.api.learning import Configuration, load_predictor, specify
from foretell.api.places import find_site
from foretell.api.workspace import StoreLike, directory_of, resolve_app, using_store
from foretell.apps.command import build_launch
from foretell.entities.app import App
from foretell.entities.prediction import Offer, Recommendation, Rejection
from foretell.entities.run import Allocation, Launch, Machine, RunSpec, State
from foretell.entities.site import NodeType, Site
from foretell.machines.allocations import list_allocations
from foretell.machines.local import LOCAL
from foretell.predictor.predictor import DEFAULT_LEVEL, Predictor
from foretell.runners.shell_script import render_shell_script
from foretell.runners.slurm.script import render_job_script
from foretell.stores import RunStore

_SHELL = "shell"
_NODE_COUNTS = (1, 2, 4, 8, 16)
_RECENT = 300  # runs among which a partition's nodes are looked for


def recommend(
    app: App | str | Path,
    configuration: Configuration,
    *,
    site: Site | str = LOCAL,
    policy: Policy | None = None,
    store: StoreLike = None,
    level: float = DEFAULT_LEVEL,
    risk: float | None = None,
) -> Recommendation:
    """Every allocation of the site the job could use, ranked, and the one to take.

    Raises:
        InfeasibleError: if nothing works, or nothing within the policy's limits.
        NotFoundError: if there is no such app or site, or no model yet.
        SpecError: if the configuration does not fit the app.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        predictor = load_predictor(known, opened)
        place = find_site(site) if isinstance(site, str) else site
        seen = _find_machines(known, place, opened)
    options, rejections = _list_options(place, predictor)
    (spec,) = specify(known, configuration, allocation=Allocation())
    specs = [replace(spec, allocation=allocation) for _, allocation in options]
    table = predictor.tabulate(specs, [seen.get(node.partition) or machine_of(node) for node, _ in options])
    forecast = predictor.forecast(table, len(specs), level=level, risk=risk)
    choice = Choice(
        app=known.name,
        site=place,
        options=options,
        predictions=predictor.explain(specs, table, forecast, level=level),
        measured=[not stretch for stretch in forecast.stretch],
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

    def best(self) -> pd.DataFrame:
        """The first choice for each configuration, with what it takes and costs; no row where nothing works."""
        ranking, first = self.ranking, self.ranking.order[:, 0]
        rows = np.flatnonzero(ranking.verdict[np.arange(len(first)), first] == WORKS)
        at = rows, first[rows]
        offers = [self.options[option][1] for option in first[rows]]
        return pd.DataFrame(
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
    predictor: Predictor, specs: Sequence[RunSpec], site: Site, *, policy: Policy | None = None
) -> RankedPairs:
    """Rank every allocation of a site for each of many configurations at once."""
    options, _ = _list_options(site, predictor)
    forecast = predictor.forecast_pairs(specs, [(allocation, machine_of(node)) for node, allocation in options])
    shape = len(specs), len(options)
    memory = forecast.memory
    time_s, longest_s = forecast.elapsed.value.reshape(shape), forecast.elapsed.high.reshape(shape)
    ranking = rank(
        build_market(options),
        time_s=time_s,
        longest_s=longest_s,
        walltime_s=forecast.elapsed.request.reshape(shape),
        memory_value=memory.value.reshape(shape) if memory else np.zeros(shape),
        memory=memory.request.reshape(shape) if memory else np.zeros(shape),
        trusted=(forecast.stretch == 0).reshape(shape),
        policy=policy or choose_policy(),
    )
    return RankedPairs(options=options, time_s=time_s, longest_s=longest_s, ranking=ranking)


def render_script(
    app: App | str | Path, offer: Offer, site: Site, *, store: StoreLike = None, account: str | None = None
) -> str:
    """The job script for an offer: for ``sbatch``, or for a shell where there is no scheduler."""
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
    spec = RunSpec(app=known.name, parameters=offer.prediction.parameters, allocation=offer.allocation)
    launch = _launch(known, spec)
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
    return Launch(argv=("echo", f"put the command of {app.name} here"))


def _list_options(site: Site, predictor: Predictor) -> tuple[list[tuple[NodeType, Allocation]], list[Rejection]]:
    """The allocations to weigh. A resource that never varied in the runs stays as it was: nothing else is known."""
    cores, gpus, nodes = (predictor.measured_counts(name) for name in ("cores", "gpus", "nodes"))
    options = list_allocations(site, cores=cores, gpus=gpus, nodes=nodes or _NODE_COUNTS)
    served = {allocation.node_type for _, allocation in options}
    rejections = [
        Rejection(
            site=site.name,
            allocation=Allocation(cores=node.cores, gpus=node.gpus, partition=node.partition, node_type=node.name),
            reason=_why_not(node, cores, gpus),
        )
        for node in site.node_types
        if node.name not in served
    ]
    return options, rejections


def _why_not(node: NodeType, cores: Collection[int] | None, gpus: Collection[int] | None) -> str:
    if cores is not None and min(cores) > node.cores:
        return f"runs used {min(cores)} cores; a node has {node.cores}"
    if gpus is not None and 0 in gpus and node.gpus:
        return "no run used a GPU, and these nodes are for jobs that do"
    return f"runs used {_render(gpus)} GPUs; a node has {node.gpus}"


def _render(counts: Collection[int] | None) -> str:
    return "several" if counts is None else " or ".join(map(str, sorted(counts)))


def _find_machines(app: App, site: Site, store: RunStore) -> dict[str, Machine]:
    """Nodes of partitions whose CPU the site does not name, as the app's own runs there have seen them."""
    unnamed = {node.partition: node for node in site.node_types if not node.cpu_model}
    if not unnamed:
        return {}
    runs = store.runs(app.name, states=[State.COMPLETED], limit=_RECENT, newest_first=True)
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
        extra=node.bench,
    )
