"""Python imports this module when it starts: the folder is on the PYTHONPATH of a command that Foretell records.

It runs in every Python process of the command, of any version, and prepares the recording: the first import of
PyTorch continues in :mod:`foretell.workloads.scripts.script_session`.
"""

import importlib.util
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # also for old versions of Python
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
_LEAST = (3, 11)


class _ForetellFinder:
    """Finds the package of the Foretell that started the command, and nothing else of its environment."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "foretell":
            return None
        start = os.path.join(_PACKAGE, "__init__.py")  # noqa: PTH118
        return importlib.util.spec_from_file_location(name, start, submodule_search_locations=[_PACKAGE])


def _run_next():  # type: ignore[no-untyped-def]
    """Run the module of this name that the environment has itself."""
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != _HERE]  # noqa: PTH100
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own


def _enter():  # type: ignore[no-untyped-def]
    folder = os.environ.get("FORETELL_SCRIPT_FOLDER", "")
    if not folder or not os.path.isdir(folder):  # noqa: PTH112
        return
    if sys.version_info < _LEAST:
        found = ".".join(map(str, sys.version_info[:3]))
        line = json.dumps({"kind": "old-python", "python": sys.executable, "version": found}) + "\n"
        with open(os.path.join(folder, "events.jsonl"), "a") as file:  # noqa: PTH118, PTH123
            file.write(line)
        return
    sys.meta_path.insert(0, _ForetellFinder())
    from foretell.workloads.scripts.script_entry import enter

    enter()


_run_next()  # type: ignore[no-untyped-call]
_enter()  # type: ignore[no-untyped-call]
