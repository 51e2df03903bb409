"""What distributed training will consume."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.apps.table_files import TableLike
from foretell.core import devices
from foretell.core.devices import Device
from foretell.core.errors import Mistake, NotFoundError, SpecError, WorkloadError
from foretell.core.warning import PredictionWarning, build_warning, experimental
from foretell.core.workload import Workload
from foretell.distributed.consumption import Change, ConsumptionPrediction, Outlook, Setting, Strategy
from foretell.distributed.placed_steps import PlacedPrediction, PlacedStep, Placement, TimedStep, read_steps
from foretell.steps.api import DEVICES, KEPT, Input, read_workload
from foretell.workloads.step_options import StepOptions

if TYPE_CHECKING:
    from foretell.distributed.consumption_predictor import OperatorTimes

_BEYOND = 2  # times the GPUs that were measured: what is told where nobody says which


@experimental
def predict_placements(
    source: TableLike,
    *,
    placements: Sequence[Placement] = (),
    workload: str | None = None,
    cluster: str | None = None,
    batch: float | None = None,
    device: str | None = None,
    link_bytes_per_s: float | None = None,
    level: float = 0.9,
) -> list[PlacedPrediction]:
    """What a step takes on each placement, the GPUs of each node, learned from a table of measured steps.

    Without ``placements``: from one GPU by doublings to twice as many as were measured. Without ``batch``: the largest
    that was measured. ``workload`` and ``cluster`` may be left out where the table has one only. A cluster that is not
    in the table is told by its ``device`` and ``link_bytes_per_s``.

    Raises:
        ImportDataError: The table cannot be read or learned from.
        NotFoundError: No such workload or cluster was measured, or there is no such device.
        SpecError: A workload or a cluster has to be named, or something cannot be.
    """
    from foretell.distributed.placement_predictor import PlacedPredictor

    rows = read_steps(source, find_device=devices.find_device)
    named = _choose_name("workload", workload, [row.placed.workload for row in rows])
    where = _choose_name("cluster", cluster, [row.placed.cluster for row in rows])
    own = _list_own(rows, named, where)
    like = next((row.placed for row in rows if row.placed.cluster == where), None)
    _check_cluster(rows, where, figures=device is not None or link_bytes_per_s is not None)
    size = max(row.placed.batch for row in own) if batch is None else batch
    _check(size, placements, link_bytes_per_s, level)
    steps = [
        PlacedStep(
            workload=named,
            cluster=where,
            batch=size,
            gpus=each,
            device=_choose_device(device, like),
            link_bytes_per_s=link_bytes_per_s or (like.link_bytes_per_s if like else None),
        )
        for each in dict.fromkeys(placements or _list_usual(rows, where))
    ]
    return PlacedPredictor.fit(rows, workload=named, cluster=where).predict(steps, level=level)


def _choose_name(kind: str, name: str | None, seen: Iterable[str]) -> str:
    known = sorted(set(seen))
    if name is None and len(known) != 1:
        expected = f"one of {', '.join(known)}"
        raise SpecError("placements", [Mistake(place=kind, found="none named", expected=expected)])
    return known[0] if name is None else name


def _list_own(rows: Sequence[TimedStep], workload: str, cluster: str) -> list[TimedStep]:
    """Those of the workload: on the cluster if there are any, otherwise anywhere."""
    anywhere = [row for row in rows if row.placed.workload == workload]
    if not anywhere:
        known = sorted({row.placed.workload for row in rows})
        raise NotFoundError("workload", workload, known=known, hint="Measure steps of it first.")
    return [row for row in anywhere if row.placed.cluster == cluster] or anywhere


def _choose_device(name: str | None, like: PlacedStep | None) -> Device | None:
    if name is not None:
        return devices.get_device(name)
    return like.device if like else None


def _check_cluster(rows: Sequence[TimedStep], cluster: str, *, figures: bool) -> None:
    """A cluster is in the table, or has figures."""
    known = sorted({row.placed.cluster for row in rows})
    if cluster not in known and not figures:
        hint = "Name the device or the link of one that was not measured."
        raise NotFoundError("cluster", cluster, known=known, hint=hint)
    if cluster in known and figures:
        expected = f"none for {cluster}, which the table has; or the name of another cluster"
        raise SpecError("placements", [Mistake(place="device and link", found="given", expected=expected)])


def _check(batch: float, placements: Sequence[Placement], link: float | None, level: float) -> None:
    mistakes = [
        Mistake(place="gpus", found=repr(each), expected="whole numbers from 1, one for each node, such as (8, 8)")
        for each in placements
        if not isinstance(each, tuple) or not each or not all(isinstance(count, int) and count > 0 for count in each)
    ]
    for place, found, right, expected in (
        ("batch", batch, 0 < batch < math.inf, "a finite number above 0"),
        ("link", link, link is None or 0 < link < math.inf, "bytes a second, above 0"),
        ("level", level, 0 < level < 1, "a share above 0 and below 1"),
    ):
        if not right:
            mistakes.append(Mistake(place=place, found=str(found), expected=expected))
    if mistakes:
        raise SpecError("placements", mistakes)


def _list_usual(rows: Sequence[TimedStep], cluster: str) -> Iterable[Placement]:
    """By doublings: within a node until it is full, then nodes."""
    here = [row.placed.gpus for row in rows if row.placed.cluster == cluster] or [row.placed.gpus for row in rows]
    full, most = max(map(max, here)), _BEYOND * max(map(sum, here))
    count = 1
    while count < full:
        yield (count,)
        count *= 2
    nodes = 1
    while nodes * full <= most:
        yield (full,) * nodes
        nodes *= 2


CONSUMPTION = "consumption"  # what was learned and measured is kept there
FASTER, SLOWER = (2.0, 4.0), (0.5,)  # links that a user may think of beside the one asked for


@experimental
def predict_consumption(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    settings: Sequence[Setting],
    batches: Sequence[int] = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    model: str | None = None,
    level: float = 0.9,
    folder: Path = KEPT,
) -> list[ConsumptionPrediction]:
    """What training a model consumes in each setting, for each batch; as the inputs say where none is given.

    Raises:
        NotFoundError: There is no such device, file, module, factory or model of consumption.
        SpecError: A setting cannot be.
        MissingExtraError, WorkloadError: As :func:`read_workload`.
    """
    for setting in settings:
        check_setting(setting)
    read = partial(read_workload, source, inputs, arguments=arguments, options=options)
    teller = _Teller(read, model=model, level=level, folder=folder)
    return [teller.tell(setting, batch) for batch in batches or (None,) for setting in settings]


@experimental
def explore_consumption(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    setting: Setting,
    batch: int | None = None,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    model: str | None = None,
    curves: bool = True,
    level: float = 0.9,
    folder: Path = KEPT,
) -> Outlook:
    """What training a model consumes in a setting, and what would change with another link, workers, servers, batch.

    Without ``curves``, what would change is left out.

    Raises:
        NotFoundError, SpecError, MissingExtraError, WorkloadError: As :func:`predict_consumption`.
    """
    check_setting(setting)
    read = partial(read_workload, source, inputs, arguments=arguments, options=options)
    teller = _Teller(read, model=model, level=level, folder=folder)
    asked = teller.tell(setting, batch)
    changes = (vary if curves else _help)(setting, asked.workload.batch)
    others = {change: teller.tell_some(pairs) for change, pairs in changes.items()}
    kept = {change: told for change, told in others.items() if len(told) > 1}
    return Outlook(asked=asked, others=kept, curves=curves)


def _help(setting: Setting, batch: int) -> dict[Change, list[tuple[Setting, int]]]:
    """What might help: twice the link, one more server."""
    link, others = setting.link_bytes_per_s, dict[Change, list[tuple[Setting, int]]]()
    if link is not None:
        others[Change.LINK] = [(setting, batch), (replace(setting, link_bytes_per_s=2 * link), batch)]
    if setting.strategy is Strategy.SERVERS:
        others[Change.SERVERS] = [(setting, batch), (replace(setting, servers=setting.servers + 1), batch)]
    return others


def vary(setting: Setting, batch: int) -> dict[Change, list[tuple[Setting, int]]]:
    """What a user may think of beside a setting: other links, workers, servers and batches, by what is changed."""
    others: dict[Change, list[tuple[Setting, int]]] = {}
    if setting.link_bytes_per_s is not None:
        rates = [setting.link_bytes_per_s * factor for factor in (*SLOWER, 1.0, *FASTER)]
        others[Change.LINK] = [(replace(setting, link_bytes_per_s=rate), batch) for rate in rates]
    others[Change.WORKERS] = [(replace(setting, workers=count), batch) for count in _spread(setting.workers)]
    if setting.strategy is Strategy.SERVERS:
        counts = sorted({1, setting.servers, setting.servers + 1, 2 * setting.servers})
        others[Change.SERVERS] = [(replace(setting, servers=count), batch) for count in counts]
    others[Change.BATCH] = [(setting, size) for size in _spread(batch)]
    return others


def _spread(count: int) -> list[int]:
    return sorted({max(1, count // 2), count, 2 * count, 4 * count})


class _Teller:
    """Answers for settings and batches; each batch is read once, and its operators are told once a device."""

    def __init__(self, read: Callable[..., Workload], *, model: str | None, level: float, folder: Path) -> None:
        from foretell.distributed.consumption_predictor import SHIPPED, find_consumption_model

        learned = None if model is None else folder / CONSUMPTION
        self._known = find_consumption_model(model or SHIPPED, learned=learned)
        self._read = read
        self._level = level
        self._folder = folder
        self._workloads: dict[int | None, Workload] = {}
        self._times: dict[tuple[str, int], OperatorTimes] = {}

    def tell(self, setting: Setting, batch: int | None) -> ConsumptionPrediction:
        workload, device = self._get_workload(batch), name_device(setting.device)
        named = replace(setting, device=device)
        times = self._get_times(workload, device)
        return self._known.predict(
            workload,
            named,
            times.operator_s,
            busy_s=times.busy_s,
            gpu=times.gpu,
            guess=times.guess,
            level=self._level,
            warnings=_list_warnings(named),
        )

    def tell_some(self, pairs: Sequence[tuple[Setting, int]]) -> tuple[ConsumptionPrediction, ...]:
        """Without those that a model's code cannot have, such as another batch than the one it was exported with."""
        told = []
        for setting, batch in pairs:
            with suppress(WorkloadError, SpecError):
                told.append(self.tell(setting, batch))
        return tuple(told)

    def _get_workload(self, batch: int | None) -> Workload:
        if batch not in self._workloads:
            workload = self._read(batch=batch)
            self._workloads |= {batch: workload, workload.batch: workload}
        return self._workloads[batch]

    def _get_times(self, workload: Workload, device: str) -> "OperatorTimes":
        key = (device, workload.batch)
        if key not in self._times:
            self._times[key] = tell_times(workload, device, self._folder)
        return self._times[key]


def name_device(name: str) -> str:
    """As the catalogue spells it."""
    figures = devices.find_device(name)
    return figures.name if figures else name


def tell_times(workload: Workload, device: str, folder: Path) -> "OperatorTimes":
    from foretell.distributed.consumption_predictor import tell_operators

    return tell_operators(workload, device, figures=devices.find_device(device), learned=folder / DEVICES)


def _list_warnings(setting: Setting) -> list[PredictionWarning]:
    if setting.workers == 1 and setting.strategy is Strategy.ALLREDUCE:
        return [build_warning("no-communication", "One worker has nobody to talk to: there is no communication.")]
    if setting.link_bytes_per_s is None:
        text = "No link was named: workers are taken to talk through one machine's memory. Say --link 10Gb."
        return [build_warning("link-not-named", text)]
    return []


def check_setting(setting: Setting) -> None:
    mistakes = []
    if setting.workers < 1:
        mistakes.append(Mistake(place="workers", found=str(setting.workers), expected="a whole number from 1"))
    if setting.strategy is Strategy.SERVERS and setting.servers < 1:
        mistakes.append(
            Mistake(place="servers", found=str(setting.servers), expected="1 or more for parameter servers")
        )
    if setting.strategy is Strategy.ALLREDUCE and setting.servers:
        mistakes.append(
            Mistake(place="servers", found=str(setting.servers), expected="none for all-reduce; or --strategy ps")
        )
    if setting.strategy is Strategy.ALLREDUCE and not setting.synchronous:
        mistakes.append(Mistake(place="asynchronous", found="all-reduce", expected="--strategy ps, which can be so"))
    if setting.link_bytes_per_s is not None and not setting.link_bytes_per_s > 0:
        found = str(setting.link_bytes_per_s)
        mistakes.append(Mistake(place="link", found=found, expected="a rate above none, such as 10Gb"))
    if mistakes:
        raise SpecError("setting", mistakes)
