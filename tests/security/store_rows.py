"""Rows as an attacker writes them into a store: SQL and JSON, with no help from Foretell."""

import json
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXAMPLE = """
name: demo
command: [sh, -c, "echo {n}"]
parameters: {n: {type: integer, values: [1, 2]}}
runner: slurm
"""


def hash_spec(parameters: Mapping[str, Any], *, partition: str | None = "owens") -> str:
    """The id of a run, which everybody can compute."""
    from foretell.core.run import Allocation, RunSpec

    return RunSpec(app="demo", parameters=parameters, allocation=Allocation(partition=partition)).id


def insert_batch(store: Path, *, batch_id: str, run_id: str, parameters: dict[str, object], **changes: object) -> None:
    """A batch that was never submitted, and the claim of its only run, for that partition."""
    partition = changes.pop("partition", "owens")
    description = {
        "id": batch_id,
        "app": "demo",
        "name": f"demo-{batch_id}",
        "directory": "/nowhere",
        "submission": {"options": {}, "partition": "owens"},
        "run_ids": [run_id],
        "submitter": {"token": "x", "hostname": "gone", "boot_id": "x", "pid": 1, "started_at": 0.0},
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    job_id = changes.pop("job_id", "")
    with sqlite3.connect(store) as connection:
        connection.execute(
            "INSERT INTO batches VALUES (?, 'demo', ?, ?)", (batch_id, job_id, json.dumps({**description, **changes}))
        )
        connection.execute(
            "INSERT INTO runs (id, app, scale, repetition, parameters, allocation, state, phases, machine, log_tail,"
            " reason, source, owner_token, owner_hostname, owner_boot_id, owner_pid, owner_started_at, heartbeat_at)"
            " VALUES (?, 'demo', 'FS', 0, ?, ?, 'running', '{}', '{}', '', '', 'slurm', ?, '', '', 0, 0,"
            " '2026-01-01 00:00:00')",
            (run_id, json.dumps(parameters), json.dumps({"partition": partition}), batch_id),
        )


if __name__ == "__main__":  # as another user
    insert_batch(Path(sys.argv[1]), **json.loads(sys.argv[2]))
