"""Where runs are made."""

from foretell.schedulers._base import Runner

__all__ = ["Runner"]
