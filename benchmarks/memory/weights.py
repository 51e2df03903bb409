"""Fits what ships with the package."""

from benchmarks.memory.overhead_fits import fit_overheads
from benchmarks.memory.timm_peaks import DEVICE, list_cases
from foretell.core.model_files import save_model
from foretell.memory.overheads import find_weights


def write_weights() -> None:
    """Fit overheads to the peaks of all families, and save them with the package."""
    cases = list_cases()
    save_model(find_weights(), fit_overheads(cases, DEVICE), {"peaks": len(cases)})
