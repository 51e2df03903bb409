"""Slurm's programs are run with fixed settings, whatever the user's environment."""

from pathlib import Path

import pytest

from foretell.core.errors import SchedulerError
from foretell.schedulers.slurm.commands import call, stream


def test_user_settings_do_not_change_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT", "SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "12")
    seen = dict(line.partition("=")[::2] for line in call(["env"]).splitlines())
    assert (seen["SLURM_BITSTR_LEN"], seen["SLURM_TIME_FORMAT"]) == ("0", "standard")
    assert not {"SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_CLUSTERS"} & set(seen)


def install_sinfo(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a ``sinfo`` that runs this script first on ``PATH``."""
    program = folder / "sinfo"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("script", "said", "transient"),
    [
        ("echo 'sinfo: error: Invalid user' >&2; exit 1", "sinfo: Invalid user", False),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact", True),
        ("echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1", "SLURM_CONF", False),
        ("exit 3", "sinfo: exit code 3 without a message", False),
        ("kill -9 $$", "sinfo: killed by signal 9", True),
    ],
)
def test_errors_of_a_program_are_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str, transient: bool
) -> None:
    install_sinfo(tmp_path, monkeypatch, script)
    with pytest.raises(SchedulerError, match=said) as caught:
        call(["sinfo"])
    assert caught.value.transient is transient


def test_a_missing_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="'sinfo' was not found; log in to a machine of a Slurm cluster"):
        call(["sinfo"])


def test_long_output_comes_in_blocks_and_a_late_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sinfo(tmp_path, monkeypatch, "head -c 3000000 /dev/zero; echo 'sinfo: error: no more' >&2; exit 1")
    with pytest.raises(SchedulerError, match="no more"), stream(["sinfo"]) as blocks:
        assert sum(map(len, blocks)) == 3_000_000
