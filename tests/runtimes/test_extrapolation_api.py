"""Allocations far from the measured ones, and other architectures, are offered only on request."""

from dataclasses import replace
from pathlib import Path

import pytest

import foretell
from foretell.core.errors import InfeasibleError
from foretell.core.prediction import Recommendation
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage

SITE = """
[sites.farm]
title = "Farm"
scheduler = "slurm"

[sites.farm.nodes.small]
cores = 4
memory = "16GB"
architecture = "x86_64"

[sites.farm.nodes.large]
cores = 64
memory = "256GB"
architecture = "x86_64"

[sites.farm.nodes.arm]
cores = 4
memory = "16GB"
architecture = "aarch64"
"""


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Runs on one and two cores of an x86_64 machine, and a site with larger nodes and others."""
    return _measure(tmp_path, Machine(cpu_model="Xeon", cores=2, memory_bytes=2**34, extra={"architecture": "x86_64"}))


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same runs as ``runs import`` stores them, on an unknown machine, predicted for an x86_64 machine."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return _measure(tmp_path, Machine())


def _measure(tmp_path: Path, machine: Machine) -> Path:
    (tmp_path / "farm.toml").write_text(SITE)
    (tmp_path / "foretell.yaml").write_text(
        "name: demo\ncommand: [./solve, '{n}']\nparameters: {n: {values: [1, 2]}}\n"
    )
    with foretell.open_store(tmp_path / ".foretell/store.db") as store:
        store.save_app(foretell.load_app(tmp_path / "foretell.yaml"))
        store.add_runs(
            Run(
                spec=RunSpec(app="demo", parameters={"n": n}, allocation=Allocation(cores=cores)),
                state=State.COMPLETED,
                usage=Usage(elapsed_s=60.0 * n / cores, peak_memory_bytes=10**9),
                machine=machine,
            )
            for n in (1, 2, 3, 4, 5)
            for cores in (1, 2)
        )
    foretell.build(tmp_path / "foretell.yaml")
    return tmp_path


def _recommend(folder: Path, *, extrapolate: bool) -> Recommendation:
    site = foretell.find_site("farm", files=[folder / "farm.toml"])
    return foretell.recommend(folder / "foretell.yaml", {"n": 3}, site=site, extrapolate=extrapolate)


def test_only_near_allocations_of_the_same_architecture_are_offered(measured: Path) -> None:
    found = _recommend(measured, extrapolate=False)
    offered = {(offer.allocation.node_type, offer.allocation.cores) for offer in found.offers}
    assert {cores for _, cores in offered} == {1, 2, 4, 8}
    assert {name for name, _ in offered} == {"small", "large"}
    reasons = {rejection.allocation.node_type: rejection.reason for rejection in found.rejections}
    assert reasons["arm"] == "aarch64 nodes; the runs were made on x86_64 (--extrapolate allows it)"


def test_on_request_everything_is(measured: Path) -> None:
    offered = {
        (offer.allocation.node_type, offer.allocation.cores) for offer in _recommend(measured, extrapolate=True).offers
    }
    assert ("large", 64) in offered
    assert ("arm", 4) in offered


def test_where_nothing_is_near_the_reason_names_the_option(measured: Path) -> None:
    site = foretell.find_site("farm", files=[measured / "farm.toml"])
    far = replace(site, node_types=tuple(replace(node, whole_node=True) for node in site.node_types if node.cores > 8))
    with pytest.raises(InfeasibleError, match=r"64 cores; the runs had 1 to 2 .*--extrapolate"):
        foretell.recommend(measured / "foretell.yaml", {"n": 3}, site=far)


def test_runs_of_unknown_architecture_are_taken_to_be_of_this_machine(imported: Path) -> None:
    found = _recommend(imported, extrapolate=False)
    assert {offer.allocation.node_type for offer in found.offers} == {"small", "large"}
    reasons = {rejection.allocation.node_type: rejection.reason for rejection in found.rejections}
    assert reasons["arm"] == (
        "aarch64 nodes; the runs name none, so x86_64 is assumed, as here (--extrapolate allows it)"
    )


def test_another_architecture_than_the_assumed_one_was_not_measured(imported: Path) -> None:
    found = _recommend(imported, extrapolate=True)
    arm = [offer for offer in found.offers if offer.allocation.node_type == "arm"]
    assert arm
    assert not any(offer.measured for offer in arm)
    assert all("aarch64 nodes; the runs name none" in " ".join(map(str, offer.prediction.warnings)) for offer in arm)
    assert any(offer.measured for offer in found.offers if offer.allocation.node_type == "small")
