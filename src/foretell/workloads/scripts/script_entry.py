"""Enters each Python process of a recorded command: notes its files and errors, and waits for PyTorch."""

import faulthandler
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.written_files import WRITTEN


def enter() -> None:
    """Prepare this process."""
    script_events.report("python", python=sys.executable)
    WRITTEN.watch()
    previous = sys.excepthook

    def explain(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
        _report_error(kind, exc, trace)
        previous(kind, exc, trace)

    sys.excepthook = explain
    _install_stack_signal()
    call_after_import("torch", _begin)


def _report_error(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    script_events.report(
        "error",
        type=kind.__name__,
        message=str(exc)[: script_events.LENGTH],
        place=script_events.find_error_place(trace),
        missing=str(exc.filename) if isinstance(exc, FileNotFoundError) else None,
        module=exc.name if isinstance(exc, ImportError) else None,
    )


def _install_stack_signal() -> None:
    """Let Foretell ask where the script is: the stack of the main thread goes to a file."""
    folder = script_events.find_folder()
    if folder is not None:
        file = (folder / f"stack.{os.getpid()}").open("w", encoding="utf-8")
        faulthandler.register(script_events.STACK_SIGNAL, file=file, all_threads=False)


def _begin() -> None:
    from foretell.workloads.scripts.script_session import begin

    begin()


def call_after_import(name: str, callback: Callable[[], None]) -> None:
    """Call a function once a module has been imported."""
    sys.meta_path.insert(0, _ModuleFinder(name, callback))


class _ModuleFinder:
    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ModuleLoader(spec.loader, self._callback)  # type: ignore[assignment]
        return spec


class _ModuleLoader:
    def __init__(self, loader: Any, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        module.__loader__ = spec.loader = self._loader
        self._loader.exec_module(module)
        self._callback()
