"""Programs are asked our way, whatever the user's environment says."""

import pytest

from foretell.probes.slurm.calls import call


def test_the_user_s_habits_do_not_change_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT", "SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "12")
    seen = dict(line.partition("=")[::2] for line in call(["env"]).splitlines())
    assert (seen["SLURM_BITSTR_LEN"], seen["SLURM_TIME_FORMAT"]) == ("0", "standard")
    assert not {"SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_CLUSTERS"} & set(seen)
