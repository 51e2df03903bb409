"""Invalid batches in a store do not block commands: they are ignored, and the others are tracked."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import Outcome
from tests.fake_slurm.cluster import FakeSlurm
from tests.security.store_rows import hash_spec, insert_batch
from tests.security.test_history_files import find_controls

from foretell.core.serialization import to_record
from foretell.measure.machine import build_owner

pytestmark = pytest.mark.slow

_BATCH = "0123456789abcdef"
_APP = """
name: demo
command: [sh, -c, "while [ -e {app_dir}/hold ]; do sleep 0.1; done; echo {n}"]
parameters: {n: {type: integer, values: [1, 2]}}
runner: slurm
"""


class Campaign:
    """Two runs that were submitted, and a batch that was not."""

    def __init__(self, folder: Path, slurm: FakeSlurm, foretell: Callable[..., Outcome]) -> None:
        self.folder = folder
        self.slurm = slurm
        self._foretell = foretell
        (folder / "foretell.yaml").write_text(_APP)
        (folder / "hold").touch()
        assert self.call("generate").code == 0

    @property
    def store(self) -> Path:
        return self.folder / ".foretell/store.db"

    def call(self, *words: str) -> Outcome:
        done = self._foretell(*words, folder=self.folder)
        assert find_controls(done.out + done.err) == set()
        return done

    def plant(self, *, parameters: dict[str, Any], directory: str = "", **more: Any) -> None:
        """Insert a batch in its own folder, or in another with the same prefix; ``soon`` is later than the others."""
        own = self.folder / ".foretell/batches/demo" / _BATCH
        run_id = hash_spec(parameters, partition=more.get("partition", "owens"))
        if more.get("created_at") == "soon":
            more["created_at"] = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
        insert_batch(
            self.store, batch_id=_BATCH, run_id=run_id, parameters=parameters, directory=f"{own}{directory}", **more
        )

    def read_status(self) -> dict[str, Any]:
        done = self.call("status", "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    def count_running(self) -> int:
        """Return the number of running runs that were submitted."""
        return sum(batch["running"] + batch["queued"] for batch in self.read_status()["batches"])

    def release(self) -> None:
        (self.folder / "hold").unlink()
        self.slurm.wait_until_idle()


@pytest.fixture
def campaign(tmp_path: Path, fake_slurm: FakeSlurm, foretell: Callable[..., Outcome]) -> Iterator[Campaign]:
    campaign = Campaign(tmp_path, fake_slurm, foretell)
    yield campaign
    (tmp_path / "hold").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"submission": {"options": {}, "partition": "nonesuch"}, "created_at": "soon"}, ""),
        ({"submission": {"options": {}, "partition": "nonesuch"}, "created_at": "soon", "job_id": "4242"}, ""),
        ({"partition": "nonesuch", "job_id": "4242"}, ""),
        ({"submission": {"options": {}, "cluster": "nonesuch"}}, "on cluster 'nonesuch' are ignored"),
        ({"parameters": {"zzz": 1}}, ""),
        ({"parameters": {"zzz": 1}, "job_id": "4242"}, ""),
        ({"parameters": {"\x1b[31m": 1}}, ""),
        ({"parameters": {"n": "\ud800\0"}, "job_id": "4242"}, ""),
        ({"created_at": "9999-12-31T23:59:59+00:00"}, "ignored: its time"),
        ({"created_at": "9999-12-31T23:59:59-23:59"}, "ignored: its time"),
        ({"created_at": "0001-01-01T00:00:00+00:00"}, "ignored: its time"),
        ({"created_at": "0001-01-01T00:00:00"}, "ignored: its time"),
        ({"created_at": "0001-01-01T00:00:00+23:59", "job_id": "4242"}, "ignored: its time"),
        ({"created_at": "2026-01-01T00:00:00"}, ""),
        ({"directory": "\0"}, "ignored: its folder"),
        ({"directory": "/\ud800"}, "ignored: its folder"),
        ({"job_id": "0"}, "ignored: its job id"),
        ({"job_id": "4294967295"}, "ignored: its job id"),
        ({"job_id": "99999999999999999999"}, "ignored: its job id"),
        ({"job_id": "\x1b[31m"}, "ignored: its job id"),
        ({"run_ids": ["../../../evil"]}, "ignored: its list of runs"),
    ],
    ids=str,
)
def test_an_invalid_row_does_not_block_commands(campaign: Campaign, row: dict[str, Any], message: str) -> None:
    campaign.plant(**{"parameters": {"n": 3}, **row})
    assert campaign.count_running() == 2
    shown = campaign.call("status")
    assert (shown.code, message in " ".join(shown.out.split())) == (0, True), shown
    again = campaign.call("generate")
    assert again.code == 0, again
    campaign.release()
    campaign.read_status()
    ended = campaign.call("generate")
    assert ended.code == 0, ended
    assert campaign.read_status()["counts"]["completed"] == 2


@pytest.mark.parametrize(
    "row",
    [
        {"submission": {"options": {}, "partition": "nonesuch"}, "created_at": "soon", "job_id": "4242"},
        {"parameters": {"zzz": 1}},
        {"created_at": "9999-12-31T23:59:59+00:00"},
        {"directory": "/\ud800"},
        {"job_id": "99999999999999999999"},
    ],
    ids=str,
)
def test_an_invalid_row_does_not_prevent_cancelling(campaign: Campaign, row: dict[str, Any]) -> None:
    campaign.plant(**{"parameters": {"n": 3}, **row})
    done = campaign.call("cancel")
    assert done.code == 0, done
    assert campaign.slurm.run("squeue", "-h", "-t", "PENDING,RUNNING") == ""
    assert campaign.call("generate").code == 0


def test_jobs_of_an_older_app_file_are_stored_and_cancelled(campaign: Campaign) -> None:
    """Its parameters are no longer in the app file."""
    (campaign.folder / "foretell.yaml").write_text(_APP.replace("{n}", "{m}").replace("{n:", "{m:"))
    assert campaign.count_running() == 2
    done = campaign.call("cancel")
    assert (done.code, "2 runs cancelled" in done.out) == (0, True), done
    assert campaign.slurm.run("squeue", "-h", "-t", "PENDING,RUNNING") == ""


@pytest.mark.parametrize("hours", [2, -2])
def test_a_submission_does_not_last_for_hours(campaign: Campaign, hours: int) -> None:
    """A row may name any process as its submitter, also one that never ends."""
    first = psutil.Process(1)
    submitter = {**to_record(build_owner()), "pid": 1, "started_at": first.create_time() - psutil.boot_time()}
    moment = datetime.now(UTC) - timedelta(hours=hours)
    campaign.plant(parameters={"n": 3}, submitter=submitter, created_at=moment.isoformat())
    done = campaign.call("cancel")
    assert done.code == 0, done


def test_changes_after_the_check_are_ignored(campaign: Campaign) -> None:
    """A batch is read again for its job id only."""
    from foretell.campaigns.placement import BatchClaims
    from foretell.campaigns.planning import AUTO_RETRIED
    from foretell.stores import open_store

    campaign.plant(parameters={"n": 3})
    with open_store(campaign.store) as store:
        checked = next(batch for batch in store.batches("demo") if batch.id == _BATCH)
        with sqlite3.connect(campaign.store) as connection:
            connection.execute(
                "UPDATE batches SET job_id = ?, description = replace(description, ?, ?) WHERE id = ?",
                ("--help", checked.directory, "/home/victim", _BATCH),
            )
        assert BatchClaims(store, retry=AUTO_RETRIED).find(checked) == checked


def test_a_row_cannot_choose_the_folder_of_a_run(campaign: Campaign) -> None:
    """SQLite accepts a text for a number, and the folder of a run has its name."""
    campaign.plant(parameters={"n": 3}, job_id="4242")
    with sqlite3.connect(campaign.store) as connection:
        connection.execute("UPDATE runs SET repetition = '0/../../../..' WHERE owner_token = ?", (_BATCH,))
    done = campaign.call("status")
    assert (done.code, "the store holds a run that Foretell did not write" in done.err) == (1, True), done
