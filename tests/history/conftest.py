"""Accounting as sacct prints it, one line for each job or step."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from foretell.core.past_jobs import JobKind, JobRow, Mark
from foretell.history.accounting_lines import Complaints, Layout, read_lines
from foretell.history.job_folding import Folder

NAMES = (
    "JobID", "JobIDRaw", "Cluster", "User", "State", "Submit", "ElapsedRaw", "TimelimitRaw", "NNodes", "AllocTRES",
    "NTasks", "TotalCPU", "MaxRSS", "AveDiskRead", "AveDiskWrite", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip
JOB = {
    "JobID": "7", "Cluster": "c1", "User": "ada", "State": "COMPLETED", "Submit": "2025-03-01T10:00:00",
    "ElapsedRaw": "100", "TimelimitRaw": "60", "NNodes": "1", "AllocTRES": "billing=4,cpu=4,mem=8G,node=1",
    "TotalCPU": "00:03:20", "JobName": "train", "WorkDir": "/u/ada", "SubmitLine": "sbatch train.sh",
}  # fmt: skip


def line(**fields: str) -> str:
    """Return the line of a job; its raw id is its id by default."""
    row = {**JOB, **fields}
    return "|".join(row.get(name, row["JobID"] if name == "JobIDRaw" else "") for name in NAMES) + "\n"


def step(job_id: str, name: str, **fields: str) -> str:
    row = {"JobID": f"{job_id}.{name}", "State": "COMPLETED", "NNodes": "1", "NTasks": "1", "JobName": name, **fields}
    return "|".join(row.get(one, "") for one in NAMES) + "\n"


class Read:
    """The result of reading a text."""

    def __init__(self, text: str | bytes, *, names: Sequence[str] = NAMES, block: int = 10**6) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.complaints = Complaints()
        self.jobs: list[JobRow] = []
        self.kinds: dict[int, JobKind] = {}
        self.clusters: list[str] = []
        layout = Layout(tuple(names))
        folder = Folder(layout, self.complaints, cluster="")
        blocks = (data[place : place + block] for place in range(0, len(data), block))
        for lines in read_lines(blocks, layout, self.complaints, start=Mark(lines=1)):
            for rows in folder.fold(lines):
                self.jobs += map(JobRow._make, rows.rows)
                self.kinds |= rows.kinds
                self.clusters.append(rows.cluster)
        self.unfinished = folder.unfinished

    def kind(self, place: int = 0) -> JobKind:
        return self.kinds[self.jobs[place].kind]

    def reasons(self) -> dict[str, tuple[int, int]]:
        """Return the number of lines for each reason, and the first."""
        return {one.reason: (one.count, one.line) for one in self.complaints.found.values()}


@pytest.fixture
def read() -> Callable[..., Any]:
    return Read
