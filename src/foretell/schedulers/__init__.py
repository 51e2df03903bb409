"""Runs commands on this machine or as jobs of a cluster."""

from foretell.schedulers._base import Runner

__all__ = ["Runner"]
