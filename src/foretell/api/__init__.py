"""What Foretell does, as Python: each function joins the stages it names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.advisor.policy import Cheapest, Fastest, choose_policy
    from foretell.api.advice import recommend, render_script
    from foretell.api.bench import bench_machine, describe_machine
    from foretell.api.campaign import generate, plan
    from foretell.api.consumption import explore_consumption, predict_consumption
    from foretell.api.exchange import find_runs, import_runs, list_runs
    from foretell.api.execution import JobRequest, preview, run
    from foretell.api.explaining import explain
    from foretell.api.handed_over import cancel, status
    from foretell.api.history import group_history, import_history, list_history_apps, report_waste
    from foretell.api.learning import build, predict
    from foretell.api.observing import observe
    from foretell.api.placed import predict_placements
    from foretell.api.places import discover_site, find_site, list_sites
    from foretell.api.proof import summarise, verify
    from foretell.api.training import learn_consumption, measure_jobs
    from foretell.api.workloads import (
        StepOptions,
        learn_device,
        list_devices,
        load_profile,
        predict_workload,
        profile_workload,
        read_workload,
        save_profile,
    )
    from foretell.api.workspace import load_app
    from foretell.apps.tables import Columns, read_table
    from foretell.entities.app import Submission
    from foretell.entities.consumption import Setting, Strategy
    from foretell.stores import create_store, open_store

__all__ = [
    "Cheapest",
    "Columns",
    "Fastest",
    "JobRequest",
    "Setting",
    "StepOptions",
    "Strategy",
    "Submission",
    "bench_machine",
    "build",
    "cancel",
    "choose_policy",
    "create_store",
    "describe_machine",
    "discover_site",
    "explain",
    "explore_consumption",
    "find_runs",
    "find_site",
    "generate",
    "group_history",
    "import_history",
    "import_runs",
    "learn_consumption",
    "learn_device",
    "list_devices",
    "list_history_apps",
    "list_runs",
    "list_sites",
    "load_app",
    "load_profile",
    "measure_jobs",
    "observe",
    "open_store",
    "plan",
    "predict",
    "predict_consumption",
    "predict_placements",
    "predict_workload",
    "preview",
    "profile_workload",
    "read_table",
    "read_workload",
    "recommend",
    "render_script",
    "report_waste",
    "run",
    "save_profile",
    "status",
    "summarise",
    "verify",
]

# Listing runs should not wait for scikit-learn: each name's module is imported when it is first asked for.
_HOMES = {
    "foretell.advisor.policy": ("Cheapest", "Fastest", "choose_policy"),
    "foretell.api.advice": ("recommend", "render_script"),
    "foretell.api.bench": ("bench_machine", "describe_machine"),
    "foretell.api.campaign": ("generate", "plan"),
    "foretell.api.consumption": ("explore_consumption", "predict_consumption"),
    "foretell.api.execution": ("JobRequest", "preview", "run"),
    "foretell.api.exchange": ("find_runs", "import_runs", "list_runs"),
    "foretell.api.explaining": ("explain",),
    "foretell.api.history": ("group_history", "import_history", "list_history_apps", "report_waste"),
    "foretell.api.learning": ("build", "predict"),
    "foretell.api.observing": ("observe",),
    "foretell.api.placed": ("predict_placements",),
    "foretell.api.places": ("discover_site", "find_site", "list_sites"),
    "foretell.api.proof": ("summarise", "verify"),
    "foretell.api.handed_over": ("cancel", "status"),
    "foretell.api.training": ("learn_consumption", "measure_jobs"),
    "foretell.api.workloads": (
        "StepOptions",
        "learn_device",
        "list_devices",
        "load_profile",
        "predict_workload",
        "profile_workload",
        "read_workload",
        "save_profile",
    ),
    "foretell.api.workspace": ("load_app",),
    "foretell.apps.tables": ("Columns", "read_table"),
    "foretell.entities.app": ("Submission",),
    "foretell.entities.consumption": ("Setting", "Strategy"),
    "foretell.stores": ("create_store", "open_store"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
