"""Fits the models of kernel times that ship with the package, on the measured kernels of all devices.

Run it with ``FORETELL_DATA=… python -m benchmarks.gpus.weights [NAME …]``.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.gpus.attention_rows import read_attention
from benchmarks.gpus.kernel_spreads import learn_spreads
from benchmarks.gpus.product_fits import build_attention, build_products, fit_attention, fit_products
from benchmarks.gpus.product_rows import read_products
from benchmarks.gpus.unseen_kernels import fit_convolutions, fit_passes
from foretell.core.model_files import save_model
from foretell.steps.kernels.law_times import LawTimeModel
from foretell.steps.kernels.shipped_models import find_weights

# Devices that are left out for the spreads: some with others of their architecture, some alone.
_PRODUCTS = ("H200", "B300", "A6000", "A100-80", "RTX4090", "RTXPRO6000", "V100-PCIe-32", "T4")
_ATTENTION = ("H200", "B300", "GB200", "A100-80", "RTXPRO6000")


def _fit_products() -> Any:
    model = fit_products()
    rows = read_products()
    model.spreads_ = learn_spreads(rows, _PRODUCTS, fit=fit_products, build=build_products)
    return model


def _fit_attention() -> Any:
    model = fit_attention()
    rows = read_attention()
    model.spreads_ = learn_spreads(rows, _ATTENTION, fit=fit_attention, build=build_attention)
    return model


_FITS: dict[str, Callable[[], Any]] = {
    "product": _fit_products,
    "attention": _fit_attention,
    "convolution": fit_convolutions,
    "memory_pass": fit_passes,
}


def write_weights(names: Iterable[str] = tuple(_FITS)) -> None:
    """Fit and save the models of these kinds of kernels."""
    for name in names:
        model = _FITS[name]()
        path = find_weights(name)
        save_model(path, model, {"devices": _list_devices(model)})
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, spreads {model.spreads_}")


def _list_devices(model: Any) -> list[str]:
    return sorted({fit.device for fit in model.fits_} if isinstance(model, LawTimeModel) else model.seen_)


if __name__ == "__main__":
    write_weights(sys.argv[1:] or tuple(_FITS))
