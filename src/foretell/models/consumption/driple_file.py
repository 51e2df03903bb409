"""The published inspector as a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.models.consumption.driple import DripleModel
from foretell.models.consumption.persist import read_model, write_model

_KIND = "driple"


def save_driple(path: Path, model: DripleModel, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to one file.

    Raises:
        MissingExtraError, StoreError: As :func:`write_model`.
    """
    record, arrays = model.to_state()
    write_model(path, _KIND, record=record, arrays=arrays, facts=facts)


def load_driple(path: Path) -> tuple[DripleModel, dict[str, Any]]:
    """A model and the facts about it.

    Raises:
        MissingExtraError, StoreError: As :func:`read_model`.
    """
    return read_model(path, _KIND, DripleModel.from_state)
