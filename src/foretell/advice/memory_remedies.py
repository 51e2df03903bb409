"""What makes a training need less memory of a GPU: only what it does not do already, and what the GPU can do."""

from collections.abc import Iterator

from foretell.advice.training_plan import RecordedTraining
from foretell.core.devices import Device, list_precisions

_FULL = ("", "fp32", "tf32")


def list_memory_remedies(recorded: RecordedTraining, device: Device) -> Iterator[str]:
    """For activations and all else."""
    settings, script = recorded.workload.settings, recorded.facts is not None
    if settings.get("checkpointing", "no") == "no":
        yield "checkpointing of activations in the script" if script else "--checkpointing"
    half = _find_half(device)
    if settings.get("precision", "") in _FULL and half:
        yield f"{half} in the script" if script else f"--precision {half}"
    if recorded.workload.batch > 1:
        yield "a smaller batch of the script" if script else "a smaller --batch"


def list_state_remedies(recorded: RecordedTraining, device: Device) -> Iterator[str]:
    """For weights, gradients and states of the optimizer of a model."""
    settings = recorded.workload.settings
    if "lora" not in settings:
        yield "--lora r=16"
    if settings.get("optimizer", "").startswith("adam") and settings["optimizer"] != "adamw8bit":
        yield "--optimizer adamw8bit"
    half = _find_half(device)
    if not settings.get("precision", "").startswith("pure-") and half:
        yield f"--precision pure-{half}"


def _find_half(device: Device) -> str:
    """The half precision that the device has; bf16 needs no scaling of the loss."""
    return next((name for name in ("bf16", "fp16") if name in list_precisions(device)), "")
