"""What distributed training will consume."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.api.workloads import DEVICES, KEPT, Input, read_workload
from foretell.entities.consumption import ConsumptionPrediction, Setting, Strategy
from foretell.entities.outlook import Change, Outlook
from foretell.entities.workload import Workload
from foretell.errors import Mistake, SpecError, WorkloadError
from foretell.machines import devices
from foretell.workloads.sources import StepOptions

if TYPE_CHECKING:
    from foretell.predictor.consumption import OperatorTimes

CONSUMPTION = "consumption"  # what was learned and measured is kept there
FASTER, SLOWER = (2.0, 4.0), (0.5,)  # links that a user may think of beside the one asked for


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
        from foretell.predictor.consumption import SHIPPED, find_consumption_model

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
            notes=_note(named),
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
    from foretell.predictor.consumption import tell_operators

    return tell_operators(workload, device, figures=devices.find_device(device), learned=folder / DEVICES)


def _note(setting: Setting) -> list[str]:
    if setting.workers == 1 and setting.strategy is Strategy.ALLREDUCE:
        return ["One worker has nobody to talk to: there is no communication."]
    if setting.link_bytes_per_s is None:
        return ["No link was named: workers are taken to talk through one machine's memory. Say --link 10Gb."]
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
