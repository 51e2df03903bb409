"""Where runs are made."""

from foretell.runners._base import Runner

__all__ = ["Runner"]
