"""Parses the fields that Slurm prints."""

import math
from datetime import datetime

import pytest

from foretell.schedulers.slurm.commands import count_gpus, parse_clock, parse_moment, parse_size, parse_tres


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00.002", 0.002),
        ("41:59.310", 2519.31),
        ("00:00:00", 0),
        ("02:11:40", 7900),
        ("1-02:03:04", 93784),
        ("12-03:04:05", 1047845),
        ("UNLIMITED", math.inf),
        ("Partition_Limit", math.inf),
        ("", None),
        ("INVALID", None),
    ],
)
def test_clocks(text: str, seconds: float | None) -> None:
    assert parse_clock(text) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["12", "1:2:3:4", "soon", "-1:00", "1-2"])
def test_invalid_clocks(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time in Slurm's format"):
        parse_clock(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("3120K", 3120 << 10),
        ("3M", 3 << 20),
        ("0.01M", 10486),
        ("700G", 700 << 30),
        ("4000Mn", 4000 << 20),
        ("2Gc", 2 << 30),
        ("3244032", 3244032),
        ("0", 0),
        ("", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def test_a_size_without_unit() -> None:
    assert parse_size("4315", unit="M") == 4315 << 20


@pytest.mark.parametrize("text", ["16?", "3X", "M", "1,5G"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size in Slurm's format"):
        parse_size(text)


@pytest.mark.parametrize("text", ["Unknown", "None", "", "N/A"])
def test_unknown_times(text: str) -> None:
    assert parse_moment(text) is None


def test_times_have_the_zone_of_this_machine() -> None:
    assert parse_moment("2025-06-01T08:00:09") == datetime(2025, 6, 1, 8, 0, 9).astimezone()


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("billing=1,cpu=1,gres/gpu:v100=1,gres/gpu=1,mem=100M,node=1", 1),
        ("cpu=4,gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("cpu=4,mem=1G", 0),
        ("", 0),
    ],
)
def test_gpus_among_trackable_resources(text: str, gpus: int) -> None:
    assert count_gpus(parse_tres(text)) == gpus
