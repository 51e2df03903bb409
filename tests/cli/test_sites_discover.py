"""``foretell sites discover`` where small programs print what Slurm's have printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORDED = Path(__file__).parents[1] / "schedulers" / "slurm" / "recorded"
PROGRAM = """#!/bin/sh
case "$0 $*" in
  *sinfo*) cat {texts}/nodes.txt;;
  *config) cat {texts}/config.txt;;
  *) cat {texts}/partitions.txt;;
esac
"""


@pytest.fixture(params=["22.05", "24.11"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def discover(version: str, tmp_path: Path, foretell: Callable[..., Any]) -> Callable[..., Any]:
    """The command, on a machine of a cluster of that version."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sinfo", "scontrol"):
        (programs / name).write_text(PROGRAM.format(texts=RECORDED / version))
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}

    def run(*words: str) -> Any:
        return foretell("sites", *words, folder=tmp_path, environment=environment)

    return run


@pytest.mark.parametrize("version", ["22.05"], indirect=True)
def test_the_file_goes_where_sites_are_found(discover: Callable[..., Any], tmp_path: Path) -> None:
    outcome = discover("discover")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "config/foretell/sites/osctest.toml").is_file()
    said = "".join(outcome.err.split())  # the folder's name may be longer than a line
    assert "osctest.toml.Fillinwhatanhourcosts" in said
    assert "[sites.osctest.defaults]" in said
    assert "foretell recommend APP --site osctest" in outcome.err
    assert "pitzer-gpu" in outcome.out
    assert discover("show", "osctest").out == outcome.out


def test_what_is_printed_is_what_is_read_back(discover: Callable[..., Any]) -> None:
    said = discover("discover", "--name", "campus", "--json")
    assert said.record["site"] == discover("show", "campus", "--json").record
    assert said.record["file"].endswith("sites/campus.toml")


@pytest.mark.parametrize("version", ["24.11"], indirect=True)
def test_limits_come_along(discover: Callable[..., Any]) -> None:
    nodes = {node["name"]: node for node in discover("discover", "--json").record["site"]["node_types"]}
    assert set(nodes) == {"thin", "gpu", "mig", "whole"}
    assert (nodes["thin"]["max_nodes"], nodes["thin"]["max_walltime_s"]) == (8, 3 * 86400)
    assert (nodes["gpu"]["cores"], nodes["gpu"]["gpus"], nodes["gpu"]["gpu_model"]) == (124, 4, "a100")
    assert nodes["whole"]["whole_node"]


def test_a_file_is_never_replaced_without_force(discover: Callable[..., Any], tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("# prices I looked up\n")
    refused = discover("discover", "--output", str(mine))
    assert refused.code == 1
    assert "exists already; pass --force" in refused.err
    assert mine.read_text() == "# prices I looked up\n"
    assert discover("discover", "--output", str(mine), "--force", "--name", "campus").code == 0
    assert mine.read_text().startswith("[sites.campus]\n")


def test_a_file_elsewhere_is_named_in_what_comes_next(discover: Callable[..., Any]) -> None:
    assert (
        "--site campus --site-file mine.toml" in discover("discover", "--name", "campus", "--output", "mine.toml").err
    )


def test_another_cluster(discover: Callable[..., Any], tmp_path: Path) -> None:
    record = discover("discover", "--cluster", "osctest", "--json").record
    assert record["site"]["script"]["clusters"] == record["site"]["name"]


@pytest.mark.parametrize("name", ["local", "two words", "", "a/b", "../x"])
def test_names_no_site_can_have(discover: Callable[..., Any], tmp_path: Path, name: str) -> None:
    refused = discover("discover", "--name", name)
    assert refused.code == 1
    assert f"--name: found {name!r}" in refused.err
    assert not (tmp_path / "config").exists()


def test_the_name_of_a_shipped_site_is_reported(discover: Callable[..., Any]) -> None:
    assert "takes the place of the site pitzer" in discover("discover", "--name", "pitzer").err


@pytest.mark.parametrize("version", ["22.05"], indirect=True)
def test_memory_to_be_filled_in_is_reported(discover: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "programs/sinfo").write_text("#!/bin/sh\necho 'owens|4|56|2:28:1|1|idle|(null)|(null)'\n")
    assert "Fill in the memory of owens" in discover("discover").err


def test_without_slurm(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell("sites", "discover", folder=tmp_path, environment={"PATH": str(tmp_path)})
    assert outcome.code == 1
    assert "log in to a machine of a Slurm cluster" in outcome.err


@pytest.mark.slurm
@pytest.mark.usefixtures("slurm_environment")
def test_on_a_real_cluster(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    said = foretell("sites", "discover", "--json", folder=tmp_path)
    assert said.code == 0, said.err
    nodes = {node["name"]: node for node in said.record["site"]["node_types"]}
    assert (nodes["owens"]["cores"], nodes["owens"]["max_nodes"]) == (28, 2)
    assert (nodes["pitzer-gpu"]["gpus"], nodes["pitzer-gpu"]["gpu_model"]) == (2, "v100")
    assert foretell("sites", "show", "osctest", "--json", folder=tmp_path).record == said.record["site"]


@pytest.mark.parametrize("version", ["22.05"], indirect=True)
def test_missing_prices_are_reported_until_they_are_filled_in(discover: Callable[..., Any], tmp_path: Path) -> None:
    assert "No prices are filled in" in discover("discover").out
    path = tmp_path / "config/foretell/sites/osctest.toml"
    text = path.read_text()
    assert "prices" not in text.partition("notes")[2].partition("[sites")[0]
    for line in ("billing = ", "price_per_core_h", "price_per_gpu_h"):
        text = text.replace(f"# {line}", line, 1)
    path.write_text(text)
    shown = discover("show", "osctest")
    assert shown.code == 0, shown.err
    assert "core-hour" in shown.out
    assert "prices" not in shown.out
