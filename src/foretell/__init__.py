"""Foretell tells what a job will need before it runs, and writes the request for it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.api import (
        Cheapest,
        Columns,
        Fastest,
        JobRequest,
        Setting,
        StepOptions,
        Strategy,
        Submission,
        bench_machine,
        build,
        cancel,
        describe_machine,
        explain,
        explore_consumption,
        find_site,
        generate,
        group_history,
        import_history,
        import_runs,
        learn_consumption,
        learn_device,
        list_devices,
        list_history_apps,
        list_runs,
        load_app,
        load_profile,
        observe,
        open_store,
        plan,
        predict,
        predict_consumption,
        predict_placements,
        predict_workload,
        preview,
        profile_workload,
        read_workload,
        recommend,
        render_script,
        report_waste,
        run,
        save_profile,
        status,
        verify,
    )

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
    "describe_machine",
    "explain",
    "explore_consumption",
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
    "load_app",
    "load_profile",
    "observe",
    "open_store",
    "plan",
    "predict",
    "predict_consumption",
    "predict_placements",
    "predict_workload",
    "preview",
    "profile_workload",
    "read_workload",
    "recommend",
    "render_script",
    "report_waste",
    "run",
    "save_profile",
    "status",
    "verify",
]


def __getattr__(name: str) -> Any:  # so that importing us imports no heavy library
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from foretell import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
