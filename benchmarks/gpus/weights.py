"""Fits the models of kernel times that ship with the package, on the measured kernels of all devices.

Run it with ``FORETELL_DATA=… python -m benchmarks gpus --write-weights``.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.gpus.product_fits import fit_attention, fit_products
from foretell.core.model_files import save_model
from foretell.steps.kernels.shipped_models import find_weights

_FITS: dict[str, Callable[[], Any]] = {"product": fit_products, "attention": fit_attention}


def write_weights(names: Iterable[str] = _FITS) -> None:
    """Fit and save the models of these kinds of kernels."""
    for name in names:
        model = _FITS[name]()
        path = find_weights(name)
        save_model(path, model, {"devices": sorted({fit.device for fit in model.fits_})})
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    write_weights(sys.argv[1:] or _FITS)
