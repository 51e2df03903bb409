"""Models of kernels without the GPUs that NeuSight's authors leave out, to compare with them on equal terms.

Left out at once: H100 (with H200, the same chip), L4 and the boards of the A100 with 80 GB; for devices of AMD all of
AMD, too. The A100 with 40 GB stays: NeuSight's authors fit on it. Steps without fused attention need no model of it.
"""

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.gpus.captures import FOLDER
from benchmarks.gpus.kernel_fitting import fit_models, read_observations
from benchmarks.gpus.kernel_observations import draw
from benchmarks.gpus.product_fits import fit_products
from benchmarks.gpus.product_rows import read_products
from benchmarks.gpus.results import DATA
from foretell.core import devices
from foretell.core.devices import get_device
from foretell.core.model_files import load_model, save_model
from foretell.steps.kernels import _base
from foretell.steps.kernels.convolution_times import ConvolutionTimeModel
from foretell.steps.kernels.pass_times import PassTimeModel
from foretell.steps.kernels.plain_times import PlainTimeModel
from foretell.steps.kernels.product_times import ProductTimeModel
from foretell.steps.kernels.shipped_models import KernelModels

_BOARDS = frozenset({"A100-80", "A100-PCIe-80", "L4"})
_MOST = 400  # observations of a device, source and label: a third of what the shipped models have, for time
_CLASSES: dict[str, Any] = {
    "product": ProductTimeModel,
    "convolution": ConvolutionTimeModel,
    "memory_pass": PassTimeModel,
}
# In addition to the package and the tables, what the fits depend on.
_MODULES = (
    "product_*.py",
    "pass_rows.py",
    "convolution_rows.py",
    "kernel_*.py",
    "recorded_kernels.py",
    "protocol_*.py",
)
_TABLES = ("aiconfigurator", "ets", "llmservingsim_profiles", "neusight/ops", "vidur_profiling", "xla_perf_tables")


def is_left_out(device: str, *, vendor: str) -> bool:
    """Whether no kernel that was measured on it is used for devices of that vendor."""
    found = get_device(device)
    if found.vendor == "AMD":
        return vendor == "AMD"
    return found.architecture == "Hopper" or found.name in _BOARDS


@cache
def load_protocol_models(vendor: str) -> KernelModels:
    """The models for devices of a vendor, fitted unless the same code fitted them to the same tables before."""
    files = {name: _find_file(name, vendor) for name in _CLASSES}
    if not files["product"].exists():
        _fit_products(vendor)
    if not all(file.exists() for file in files.values()):
        _fit_passes(vendor)
    found = {name: load_model(files[name], [kind], remedy="delete it")[0] for name, kind in _CLASSES.items()}
    return {**found, "attention": PlainTimeModel()}


def _fit_products(vendor: str) -> None:
    _report(f"matrix products, for {vendor}")
    rows = read_products()
    left_out = {name for name in rows.device.unique() if is_left_out(name, vendor=vendor)}
    save_model(_find_file("product", vendor), fit_products(rows[~rows.device.isin(left_out)]), {})


def _fit_passes(vendor: str) -> None:
    """Convolutions and passes, for all vendors alike: of AMD's devices none were measured."""
    _report("passes over memory")
    observations = draw(read_observations(), _MOST)
    models = fit_models([one for one in observations if not is_left_out(one.device, vendor="AMD")])
    save_model(_find_file("convolution", vendor), models.convolutions, {})
    save_model(_find_file("memory_pass", vendor), models.passes, {})


def _report(what: str) -> None:
    print(f"  fitting without H100, L4 and A100-80: {what}; this takes minutes ...", file=sys.stderr, flush=True)


def _find_file(name: str, vendor: str) -> Path:
    name = f"{name}-{vendor}" if name == "product" else name
    return FOLDER / f"protocol-{_hash_inputs()}-{name}.safetensors"


@cache
def _hash_inputs() -> str:
    digest = hashlib.sha256()
    for path in _list_code():
        digest.update(path.read_bytes())
    for path in sorted(path for name in _TABLES for path in (DATA / name).rglob("*") if path.is_file()):
        digest.update(f"{path} {path.stat().st_size}".encode())
    return digest.hexdigest()[:16]


def _list_code() -> Iterator[Path]:
    yield from sorted(Path(_base.__file__).parent.glob("*.py"))
    yield from sorted((Path(devices.__file__).parent / "data" / "devices").glob("*.toml"))
    yield from sorted({path for pattern in _MODULES for path in Path(__file__).parent.glob(pattern)})
