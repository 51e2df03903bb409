"""What trainers of libraries say of a training: its length, its evaluations and its checkpoints."""

import math
from types import FrameType
from typing import Any

from foretell.workloads.scripts.script_values import count_items, read_attribute
from foretell.workloads.scripts.training_counts import TrainingCounts

_NONE = TrainingCounts()


def ask_trainer(frame: FrameType, batches: int | None) -> TrainingCounts:
    """What the object that runs a frame of a library says; nothing if it is no trainer."""
    module = str(frame.f_globals.get("__name__", ""))
    trainer = frame.f_locals.get("self")
    if trainer is None:
        return _NONE
    if module.startswith("transformers.trainer"):
        return _ask_transformers(trainer, batches)
    return (
        _ask_lightning(trainer) if module.startswith("lightning") or module.startswith("pytorch_lightning") else _NONE
    )


def _ask_transformers(trainer: Any, batches: int | None) -> TrainingCounts:
    settings = read_attribute(trainer, "args")
    accumulated = _read_count(settings, "gradient_accumulation_steps") or 1
    an_epoch = max(1, batches // accumulated) if batches else None
    evaluation = _count_evaluated(trainer, settings)
    evaluations = _find_rate(settings, "eval", an_epoch)
    return TrainingCounts(
        epochs=_read_count(settings, "num_train_epochs"),
        steps=_read_count(settings, "max_steps"),
        evaluation_batches=0.0 if evaluations == 0 else _multiply(evaluations, evaluation),
        saves_per_epoch=_find_rate(settings, "save", an_epoch),
    )


def _find_rate(settings: Any, what: str, steps_an_epoch: int | None) -> float | None:
    """How often an epoch, by the strategy and its steps."""
    strategy = read_attribute(settings, f"{what}_strategy")
    word = str(getattr(strategy, "value", strategy))
    if word in ("no", "epoch"):
        return float(word == "epoch")
    steps = _read_count(settings, f"{what}_steps")
    return steps_an_epoch / steps if word == "steps" and steps and steps_an_epoch else None


def _count_evaluated(trainer: Any, settings: Any) -> int | None:
    examples = count_items(read_attribute(trainer, "eval_dataset"))
    batch = _read_count(settings, "eval_batch_size")
    return math.ceil(examples / batch) if examples is not None and batch else None


def _ask_lightning(owner: Any) -> TrainingCounts:
    trainer = read_attribute(owner, "trainer")
    return TrainingCounts(
        epochs=_read_count(trainer, "max_epochs"),
        steps=_read_count(trainer, "max_steps"),
        evaluation_batches=_count_validated(trainer),
        saves_per_epoch=_count_saves(trainer),
    )


def _count_validated(trainer: Any) -> float | None:
    """Batches of the validation an epoch."""
    loop = read_attribute(read_attribute(read_attribute(trainer, "fit_loop"), "epoch_loop"), "val_loop")
    batches = read_attribute(loop, "max_batches")
    counts = batches if isinstance(batches, list) else [batches]
    every = read_attribute(trainer, "check_val_every_n_epoch")
    share = read_attribute(trainer, "val_check_interval")
    if (
        not all(type(each) is int for each in counts)
        or type(every) is not int
        or type(share) is not float
        or share <= 0
    ):
        return None
    return float(sum(counts)) / every * (1 / share)


def _count_saves(trainer: Any) -> float | None:
    """Checkpoints an epoch, where one callback writes one after each epoch, or none does."""
    found = read_attribute(trainer, "checkpoint_callbacks")
    if not isinstance(found, list) or len(found) > 1:
        return None
    if not found:
        return 0.0
    usual = read_attribute(found[0], "_every_n_epochs") == 1 and not read_attribute(found[0], "_every_n_train_steps")
    return 1.0 if usual and read_attribute(found[0], "monitor") is None else None


def _read_count(owner: Any, name: str) -> int | None:
    value = read_attribute(owner, name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value > 0 else None


def _multiply(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first * second
