"""Why a run did not complete, in the same words wherever it ran."""

import signal

from foretell.core.units import render_bytes, render_duration


def render_time_limit(limit_s: float) -> str:
    return f"stopped at its time limit of {render_duration(limit_s)}"


def render_memory_limit(limit_bytes: int) -> str:
    return f"used more than the {render_bytes(limit_bytes)} of memory it asked for"


def render_exit(code: int) -> str:
    """How it ended; a negative code is a signal's number."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (perhaps the machine ran out of memory)" if -code == signal.SIGKILL else ""
    return f"ended with {name}{hint}"
