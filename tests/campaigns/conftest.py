"""Runs of a small app, as the tests of models have them."""

from tests.runtimes.conftest import app, build_runs, build_spec

__all__ = ["app", "build_runs", "build_spec"]
