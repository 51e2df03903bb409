"""What a captured step leaves open."""

from collections.abc import Iterator, Sequence

from foretell.core.generation import Generation
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload

OWN_STEP = "is a LightningModule"
_SHOWN = 5


def find_warnings(workload: Workload) -> tuple[PredictionWarning, ...]:
    """Warnings about what was assumed of unknown values, and about operators whose cost is not known."""
    return (*find_note_warnings(workload.notes), *_find_cost_warnings(workload))


def find_note_warnings(notes: Sequence[str]) -> Iterator[PredictionWarning]:
    """Warnings about what was assumed or used when a step was read."""
    for note in notes:
        if OWN_STEP in note:
            yield build_warning("own-step", f"{note}.")
    assumed = [note for note in notes if OWN_STEP not in note]
    if assumed:
        more = f" And {len(assumed) - _SHOWN} others." if len(assumed) > _SHOWN else ""
        text = f"The step depends on values that are unknown without running it. {'; '.join(assumed[:_SHOWN])}.{more}"
        yield build_warning("assumed-values", text, notes=assumed)


def _find_cost_warnings(workload: Workload) -> tuple[PredictionWarning, ...]:
    unknown = workload.unknown
    if not unknown:
        return ()
    many = sum(unknown.values())
    named = [f"{kind} ({number})" if number > 1 else kind for kind, number in list(unknown.items())[:_SHOWN]]
    rest = [f"{len(unknown) - _SHOWN} other kinds"] if len(unknown) > _SHOWN else []
    text = (
        f"The cost of {many:,} of {len(workload.operators):,} operators is not known: {', '.join(named + rest)}. "
        "Each counts as one operation for each element, and as reading its inputs and writing its outputs once; "
        "their real time may be much longer. PyTorch's register_flop_formula makes the FLOPs of an operator known."
    )
    return (build_warning("unknown-costs", text, kinds=dict(unknown), operators=many),)


def find_generation_warnings(generation: Generation) -> tuple[PredictionWarning, ...]:
    """A warning if each token reads the whole text again."""
    if generation.cached or generation.new == 1:
        return ()
    text = (
        "The model takes no cache of keys and values (an argument 'past_key_values' of its forward): "
        "each new token reads the whole text again."
    )
    return (build_warning("no-cache", text),)
