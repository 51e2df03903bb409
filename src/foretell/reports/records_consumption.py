"""What ``foretell consumption --json`` prints."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from foretell.entities.consumption import ConsumptionPrediction, Resource, Setting
from foretell.entities.outlook import Outlook
from foretell.entities.records import to_record
from foretell.reports.words_consumption import describe_limit, explain_missing, name_unit

Record = dict[str, Any]


class Learned(Protocol):
    """What was learned from measured trainings."""

    @property
    def name(self) -> str: ...
    @property
    def jobs(self) -> int: ...
    @property
    def disturbed(self) -> int: ...
    @property
    def settings(self) -> Iterable[Setting]: ...
    @property
    def resources(self) -> frozenset[Resource]: ...
    @property
    def transferred(self) -> bool: ...
    @property
    def path(self) -> Path: ...
    @property
    def measured(self) -> Path: ...


def build_outlook_record(outlook: Outlook) -> Record:
    """Seconds, bytes a second, cores or shares of a GPU; ``changes`` has what would change, one thing at a time."""
    return {
        **build_consumption_record(outlook.asked),
        "limit": describe_limit(outlook),
        "changes": {
            change.value: [build_consumption_record(told) for told in row] for change, row in outlook.shown.items()
        },
    }


def build_consumption_record(prediction: ConsumptionPrediction) -> Record:
    """A prediction; a resource of which nothing is told says why."""
    return {
        "name": prediction.workload.name,
        "batch": prediction.workload.batch,
        "setting": to_record(prediction.setting),
        "iteration_s": to_record(prediction.iteration),
        "compute_s": prediction.compute_s,
        "exposed_s": prediction.exposed_s,
        "exposed_share": prediction.exposed_share,
        "examples_per_s": prediction.examples_per_s,
        "resources": {resource.value: _build_resource(resource, prediction) for resource in Resource},
        "doubts": list(prediction.doubts),
        "notes": list(prediction.notes),
    }


def _build_resource(resource: Resource, prediction: ConsumptionPrediction) -> Record:
    cycle = prediction.cycles.get(resource)
    why = "" if cycle else explain_missing(resource, prediction)
    return {"unit": name_unit(resource, prediction), "cycle": to_record(cycle), "why": why}


def build_learned_consumption_record(learned: Learned) -> Record:
    """What was learned from, and where it is kept."""
    return {
        "name": learned.name,
        "jobs": learned.jobs,
        "disturbed": learned.disturbed,
        "settings": [to_record(setting) for setting in learned.settings],
        "resources": sorted(learned.resources),
        "transferred": learned.transferred,
        "file": str(learned.path),
        "measured": str(learned.measured),
    }
