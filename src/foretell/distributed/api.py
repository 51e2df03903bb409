"""Predicts what distributed training consumes and how it scales, and fits models to measured trainings."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.core import devices
from foretell.core.device_figures import is_device_file, open_device
from foretell.core.devices import Device
from foretell.core.errors import ImportDataError, Mistake, NotFoundError, SpecError, WorkloadError
from foretell.core.observation import Resource
from foretell.core.private_files import make_kept_folder
from foretell.core.table_files import TableLike
from foretell.core.warning import PredictionWarning, build_warning, experimental
from foretell.core.workload import Workload
from foretell.distributed import DEFAULT_METHOD, get_method
from foretell.distributed.consumption import (
    Case,
    Change,
    ConsumptionPrediction,
    MeasuredJob,
    Outlook,
    Setting,
    Strategy,
)
from foretell.distributed.placed_steps import PlacedPrediction, PlacedStep, Placement, TimedStep, read_steps
from foretell.steps.api import DEVICES, KEPT, Input, check_name, read_workload
from foretell.workloads.api import require_torch
from foretell.workloads.step_options import StepOptions

if TYPE_CHECKING:
    from foretell.distributed.consumption_predictor import ConsumptionPredictor
    from foretell.distributed.operator_times import OperatorTimes

_LARGEST_DEFAULT = 2  # times the measured GPUs, where no placements are given
CONSUMPTION = "consumption"  # the folder of fitted models
_FASTER, _SLOWER = (2.0, 4.0), (0.5,)  # other links that are predicted


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
    """The time of a step on each placement (the GPUs of each node), fitted to a table of measured steps.

    Without ``placements``: one GPU, two, four and so on, to twice as many as were measured. Without ``batch``: the
    largest measured. ``workload`` and ``cluster`` are needed where the table has several. A cluster that is not in the
    table needs its ``device`` or ``link_bytes_per_s``.

    Raises:
        ImportDataError: The table cannot be read or fitted to.
        NotFoundError: No such workload or cluster was measured, or there is no such device.
        SpecError: A workload or cluster must be chosen, or a value is not possible.
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
        for each in dict.fromkeys(placements or _list_default_placements(rows, where))
    ]
    return PlacedPredictor.fit(rows, workload=named, cluster=where).predict(steps, level=level)


def _choose_name(kind: str, name: str | None, measured: Iterable[str]) -> str:
    known = sorted(set(measured))
    if name is None and len(known) != 1:
        expected = f"one of {', '.join(known)}"
        raise SpecError("placements", [Mistake(place=kind, found="none", expected=expected)])
    return known[0] if name is None else name


def _list_own(rows: Sequence[TimedStep], workload: str, cluster: str) -> list[TimedStep]:
    """Rows of the workload on the cluster, or on all clusters where there is none."""
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
    """A cluster is either in the table, or described by its device or link."""
    known = sorted({row.placed.cluster for row in rows})
    if cluster not in known and not figures:
        hint = "For a cluster that was not measured, pass its device or link."
        raise NotFoundError("cluster", cluster, known=known, hint=hint)
    if cluster in known and figures:
        expected = f"neither for {cluster}, which is in the table; or the name of another cluster"
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


def _list_default_placements(rows: Sequence[TimedStep], cluster: str) -> Iterable[Placement]:
    """By doublings: GPUs of a node until it is full, then nodes."""
    here = [row.placed.gpus for row in rows if row.placed.cluster == cluster] or [row.placed.gpus for row in rows]
    full, most = max(map(max, here)), _LARGEST_DEFAULT * max(map(sum, here))
    count = 1
    while count < full:
        yield (count,)
        count *= 2
    nodes = 1
    while nodes * full <= most:
        yield (full,) * nodes
        nodes *= 2


@experimental
def predict_consumption(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    settings: Sequence[Setting],
    batches: Sequence[int] = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    method: str | None = None,
    model: str | None = None,
    level: float = 0.9,
    folder: Path = KEPT,
) -> list[ConsumptionPrediction]:
    """What training a model consumes in each setting, for each batch; without batches, for that of the inputs.

    ``model`` is the name of a fitted model; without it, the one that ships with the method is used.

    Raises:
        NotFoundError: There is no such device, file, module, factory, method or fitted model.
        SpecError: A setting is not possible, the device lacks the precision, or the model has another method.
        MissingExtraError, WorkloadError: As :func:`read_workload`.
    """
    for setting in settings:
        check_setting(setting)
    read = partial(read_workload, source, inputs, arguments=arguments, options=options)
    predictor = _CachedPredictor(read, method=method, model=model, level=level, folder=folder)
    return [predictor.predict(setting, batch) for batch in batches or (None,) for setting in settings]


@experimental
def explore_consumption(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    setting: Setting,
    batch: int | None = None,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    method: str | None = None,
    model: str | None = None,
    curves: bool = True,
    level: float = 0.9,
    folder: Path = KEPT,
) -> Outlook:
    """What training a model consumes in a setting, what limits it, and what other links, workers and batches change.

    Without ``curves``, only the changes that the limit depends on are predicted.

    Raises:
        NotFoundError, SpecError, MissingExtraError, WorkloadError: As :func:`predict_consumption`.
    """
    check_setting(setting)
    read = partial(read_workload, source, inputs, arguments=arguments, options=options)
    predictor = _CachedPredictor(read, method=method, model=model, level=level, folder=folder)
    asked = predictor.predict(setting, batch)
    changes = (list_changes if curves else _list_limit_changes)(setting, asked.workload.batch)
    others = {change: predictor.predict_possible(pairs) for change, pairs in changes.items()}
    kept = {change: row for change, row in others.items() if len(row) > 1}
    return Outlook(asked=asked, others=kept, curves=curves)


def _list_limit_changes(setting: Setting, batch: int) -> dict[Change, list[tuple[Setting, int]]]:
    """What decides the limit: twice the link, one more server."""
    link, others = setting.link_bytes_per_s, dict[Change, list[tuple[Setting, int]]]()
    if link is not None:
        others[Change.LINK] = [(setting, batch), (replace(setting, link_bytes_per_s=2 * link), batch)]
    if setting.strategy is Strategy.SERVERS:
        others[Change.SERVERS] = [(setting, batch), (replace(setting, servers=setting.servers + 1), batch)]
    return others


def list_changes(setting: Setting, batch: int) -> dict[Change, list[tuple[Setting, int]]]:
    """Other links, workers, servers and batches to predict, by what is changed."""
    others: dict[Change, list[tuple[Setting, int]]] = {}
    if setting.link_bytes_per_s is not None:
        rates = [setting.link_bytes_per_s * factor for factor in (*_SLOWER, 1.0, *_FASTER)]
        others[Change.LINK] = [(replace(setting, link_bytes_per_s=rate), batch) for rate in rates]
    others[Change.WORKERS] = [(replace(setting, workers=count), batch) for count in _list_counts(setting.workers)]
    if setting.strategy is Strategy.SERVERS:
        counts = sorted({1, setting.servers, setting.servers + 1, 2 * setting.servers})
        others[Change.SERVERS] = [(replace(setting, servers=count), batch) for count in counts]
    others[Change.BATCH] = [(setting, size) for size in _list_counts(batch)]
    return others


def _list_counts(count: int) -> list[int]:
    return sorted({max(1, count // 2), count, 2 * count, 4 * count})


class _CachedPredictor:
    """Predicts settings and batches; each batch is captured once, and its operators are timed once for each device."""

    def __init__(
        self, read: Callable[..., Workload], *, method: str | None, model: str | None, level: float, folder: Path
    ) -> None:
        from foretell.distributed.consumption_predictor import find_consumption_model

        self._predictor = find_consumption_model(model, method=method, learned=folder / CONSUMPTION)
        self._read = read
        self._level = level
        self._folder = folder
        self._figures: dict[str, Device | None] = {}  # by the name that was given
        self._workloads: dict[int | None, Workload] = {}
        self._times: dict[tuple[str, int], OperatorTimes] = {}

    def predict(self, setting: Setting, batch: int | None) -> ConsumptionPrediction:
        if setting.device not in self._figures:
            self._figures[setting.device] = _find_figures(setting.device)
        figures = self._figures[setting.device]
        named = replace(setting, device=figures.name if figures else setting.device)
        workload = self._get_workload(batch)
        if figures:
            devices.check_precision(figures, workload.settings.get("precision", "fp32"))
        times = self._get_times(workload, named.device, figures)
        return self._predictor.predict(
            workload,
            named,
            times.operator_s,
            busy_s=times.busy_s,
            gpu=times.gpu,
            guess=times.guess,
            level=self._level,
            warnings=_list_warnings(named),
        )

    def predict_possible(self, pairs: Sequence[tuple[Setting, int]]) -> tuple[ConsumptionPrediction, ...]:
        """Without those that the code or the method does not allow, such as another batch than it was exported with."""
        predictions = []
        for setting, batch in pairs:
            with suppress(WorkloadError, SpecError, NotFoundError):
                predictions.append(self.predict(setting, batch))
        return tuple(predictions)

    def _get_workload(self, batch: int | None) -> Workload:
        if batch not in self._workloads:
            workload = self._read(batch=batch)
            self._workloads |= {batch: workload, workload.batch: workload}
        return self._workloads[batch]

    def _get_times(self, workload: Workload, device: str, figures: Device | None) -> "OperatorTimes":
        key = (device, workload.batch)
        if key not in self._times:
            self._times[key] = _predict_times(workload, device, figures, self._folder)
        return self._times[key]


def _find_figures(device: str) -> Device | None:
    """Those of the catalogue or of a TOML file; none of a device that was learned here."""
    return open_device(device) if is_device_file(device) else devices.find_device(device)


def _predict_times(workload: Workload, device: str, figures: Device | None, folder: Path) -> "OperatorTimes":
    from foretell.distributed.operator_times import predict_operator_times

    return predict_operator_times(workload, device, figures=figures, learned=folder / DEVICES)


def _list_warnings(setting: Setting) -> list[PredictionWarning]:
    if setting.workers == 1 and setting.strategy is Strategy.ALLREDUCE:
        return [build_warning("no-communication", "There is one worker, and so no communication.")]
    if setting.link_bytes_per_s is None:
        text = "No link was given: workers communicate through the memory of one machine. Pass --link 10Gb."
        return [build_warning("link-not-named", text)]
    return []


def check_setting(setting: Setting) -> None:
    """Check that a setting is possible.

    Raises:
        SpecError: With every mistake.
    """
    workers, servers, link = setting.workers, setting.servers, setting.link_bytes_per_s
    reduces = setting.strategy is Strategy.ALLREDUCE
    rules = (
        ("workers", workers, isinstance(workers, int) and workers >= 1, "a whole number from 1"),
        ("servers", servers, reduces or servers >= 1, "1 or more for parameter servers"),
        ("servers", servers, not (reduces and servers), "none for all-reduce; or --strategy ps"),
        ("asynchronous", "all-reduce", setting.synchronous or not reduces, "--strategy ps"),
        ("link", link, link is None or link > 0, "a rate above 0, such as 10Gb"),
    )
    mistakes = [
        Mistake(place=place, found=str(found), expected=expected)
        for place, found, valid, expected in rules
        if not valid
    ]
    if mistakes:
        raise SpecError("setting", mistakes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedConsumption:
    """A model fitted to measured trainings, and its file."""

    name: str
    method: str
    jobs: int
    disturbed: int  # measurements
    settings: tuple[Setting, ...]
    resources: frozenset[Resource]  # with a cycle in at least one job
    transferred_from: str | None  # None: fitted from scratch
    path: Path
    measured: Path


@experimental
def learn_consumption(
    jobs: Path,
    *,
    name: str = "here",
    method: str = DEFAULT_METHOD,
    base: str | None = None,
    scratch: bool = False,
    folder: Path = KEPT,
) -> LearnedConsumption:
    """Fit a model to a file of measured trainings, and keep it under a name.

    It is transferred from the model ``base``, or from the one that ships with the method. From ``scratch``, and where
    none ships, it is fitted to these trainings only.

    Raises:
        NotFoundError: There is no such method or base, or a device of the trainings is unknown.
        SpecError: The name is not valid, or the base has another method or none to transfer.
        NotEnoughRunsError: There are too few trainings.
        ImportDataError: The file cannot be read.
        MissingExtraError: PyTorch is not installed.
    """
    require_torch()
    from foretell.distributed.consumption_predictor import SUFFIX, learn_consumption_model
    from foretell.distributed.measured_jobs import build_jobs, read_rows

    chosen = check_name(name)
    source = _find_base(base, method=method, scratch=scratch, folder=folder)
    rows = read_rows(Path(jobs))
    known = build_jobs(rows)
    if not known:
        raise ImportDataError(f"{jobs}: no measured trainings; measure some with 'python -m lab measure --out {jobs}'")
    cases = list(_build_cases(known, folder))
    model = source[1].transfer(cases, known) if source else learn_consumption_model(cases, known, method=method)
    path = make_kept_folder(folder, CONSUMPTION) / f"{chosen}{SUFFIX}"
    model.save(path)
    return LearnedConsumption(
        name=name,
        method=method,
        jobs=len(known),
        disturbed=sum(row.disturbed for row in rows),
        settings=tuple(dict.fromkeys(job.setting for job in known)),
        resources=frozenset(resource for job in known for resource in job.cycles),
        transferred_from=source[0] if source else None,
        path=path,
        measured=Path(jobs),
    )


def _find_base(
    base: str | None, *, method: str, scratch: bool, folder: Path
) -> "tuple[str, ConsumptionPredictor] | None":
    """The name of the model to transfer from, and the model."""
    from foretell.distributed._base import TransferableModel
    from foretell.distributed.consumption_predictor import SHIPPED, find_consumption_model

    transferable = issubclass(get_method(method), TransferableModel)
    if base is None and (scratch or method not in SHIPPED or not transferable):
        return None
    if base is not None and (scratch or not transferable):
        found = "with --scratch" if scratch else f"with {method}, which has no transfer"
        raise SpecError("options", [Mistake(place="from", found=found, expected="one of them only")])
    name = base or SHIPPED[method]
    return name, find_consumption_model(base, method=method, learned=folder / CONSUMPTION)


def _build_cases(jobs: Sequence[MeasuredJob], folder: Path) -> Iterator[Case]:
    for job in jobs:
        device = job.setting.device
        times = _predict_times(job.workload, device, devices.find_device(device), folder)
        yield Case(workload=job.workload, setting=job.setting, operator_s=times.operator_s)
