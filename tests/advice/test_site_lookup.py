import pytest

from foretell.advice.site_lookup import build_local_site, list_allocations
from foretell.core.errors import SiteError
from foretell.core.prices import price_per_hour
from foretell.core.run import Machine
from foretell.core.site import Billing


def test_the_machine_as_detected_costs_nothing() -> None:
    machine = Machine(hostname="lab", cpu_model="Some CPU", cores=6, cpu_mhz=2400.0, memory_bytes=2**34)
    site = build_local_site(machine)
    (node,) = site.node_types
    assert (site.name, site.scheduler) == ("local", "shell")
    assert (node.cores, node.memory_bytes, node.cpu_mhz) == (6, 2**34, 2400.0)
    assert all(node.billing is Billing.FREE and not price_per_hour(node, it) for node, it in list_allocations(site))


def test_its_gpus_can_be_used_or_not() -> None:
    site = build_local_site(Machine(cores=2, memory_bytes=2**30, gpus=1, gpu_model="Some GPU"))
    assert {allocation.gpus for _, allocation in list_allocations(site)} == {0, 1}


def test_what_could_not_be_detected_is_named() -> None:
    with pytest.raises(SiteError, match=r"2 mistakes\n  cores: .*--site-file\n  memory: "):
        build_local_site(Machine())


def test_its_bench_comes_along() -> None:
    figures = {"bench_version": 1, "bench_s": 0.5, "bench_core_s": 0.7}
    (node,) = build_local_site(Machine(cores=2, memory_bytes=2**30, extra={"physical_cores": 1, **figures})).node_types
    assert node.bench == figures
