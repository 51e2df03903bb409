"""Runs a command inside a job and records its usage: ``python -m foretell.measure.job_sampler COMMAND…``.

The command has our environment, working directory, process group, input and output; signals are passed on to it, and
we end with its exit code (128 plus the number of a signal, as shells do). The record is in the run's directory
(``FORETELL_RUN_DIR``, or else the working directory): written from the first second on, updated, and exact at the end.
If recording fails, the command continues. It imports almost nothing, so that the command starts at once.
"""

from __future__ import annotations

import os
import sys

from foretell.measure.child_process import Child

TYPE_CHECKING = False  # as mypy reads it; typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP = """\
Usage: python -m foretell.measure.job_sampler [--] COMMAND...

Run a command and record its usage in sample.json, in $FORETELL_RUN_DIR or here.

Example: python -m foretell.measure.job_sampler sleep 10
"""
_MISUSED, _CANNOT_RUN, _NOT_FOUND, _SIGNALLED = 2, 126, 127, 128  # exit codes, as shells have them


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    words = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not words or (words is arguments and words[0] in ("-h", "--help")):
        sys.stderr.write(_HELP)
        return 0 if words else _MISUSED
    try:
        child = Child(words, environment=os.environ)  # that of the job, chosen when it was submitted
    except FileNotFoundError:
        _report(f"{words[0]!r} was not found; is it installed on this node, and in a folder of PATH?")
        return _NOT_FOUND
    except (OSError, ValueError) as exc:
        _report(f"{words[0]!r} cannot be run: {_explain(exc)}; it must be a program this node can execute")
        return _CANNOT_RUN
    _record(child)
    code = child.reap()[0] if child.exit_code is None else child.exit_code
    return code if code >= 0 else _SIGNALLED - code


def _record(child: Child) -> None:
    try:
        from foretell.measure.job_recorder import JobRecorder

        JobRecorder(child).record()
    except Exception as exc:  # the command matters more than its record
        _report(f"the usage of {child.words[0]!r} was not recorded: {_explain(exc)}")


def _explain(exc: Exception) -> str:
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__


def _report(sentence: str) -> None:
    sys.stderr.write(f"foretell sampler: {sentence}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
