"""Accounting as ``sacct --parsable2`` prints it, made up: arrays, steps, odd states, unicode, missing fields."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from foretell.history.accounting_sources import FIELDS

_STATES = (
    ("COMPLETED", 78), ("FAILED", 8), ("CANCELLED by 1042", 5), ("TIMEOUT", 4), ("OUT_OF_MEMORY", 2),
    ("NODE_FAIL", 1), ("PREEMPTED", 1), ("RUNNING", 0.5), ("PENDING", 0.5),
)  # fmt: skip
_NAMES = ("train", "relax", "größe", "bwa_mem", "wrf", "müller-lbm", "interactive", "wrap")
_PARTITIONS = ("cpu", "gpu", "longserial", "debug")
_FIRST = datetime(2025, 1, 1)  # sacct knows no zones
_SEED = 20250101


def write_accounting(path: Path, *, lines: int, seed: int = _SEED) -> None:
    """That many lines, with a head before them."""
    with path.open("w", encoding="utf-8") as file:
        file.write("|".join(FIELDS) + "\n")
        for number, line in enumerate(_make_lines(random.Random(seed))):
            if number == lines:
                return
            file.write(line)


def _make_lines(draw: random.Random) -> Iterator[str]:
    words, weights = zip(*_STATES, strict=True)
    now, raw = _FIRST, 1000
    while True:
        now += timedelta(seconds=draw.randrange(90))
        user = f"user{draw.randrange(300)}"
        name = _NAMES[draw.randrange(len(_NAMES))]
        tasks = draw.choice((0, 0, 0, 0, 0, 4, 16, 50))
        size = draw.choice((1, 1, 2, 4, 8, 28))
        kind = {
            "Cluster": "pitzer", "User": user, "Account": f"pas{draw.randrange(1000, 1060)}",
            "Partition": draw.choice(_PARTITIONS), "JobName": f"{name}_lr{draw.choice((0.1, 0.3))}_run{raw % 97}",
            "WorkDir": f"/users/{user}/{name}/case{raw % 50}",
            "SubmitLine": f"sbatch -N1 -t 240 {name}.sh --epochs {10 * draw.randrange(1, 20)} --batch={2 ** size}",
        }  # fmt: skip
        master = raw
        for task in range(max(tasks, 1)):
            job_id = f"{master}_{task}" if tasks else f"{master}"
            yield from _make_job(draw, kind, job_id, raw, now, size, draw.choices(words, weights)[0])
            raw += 1


def _make_job(
    draw: random.Random, kind: dict[str, str], job_id: str, raw: int, submitted: datetime, cores: int, state: str
) -> Iterator[str]:
    started = submitted + timedelta(seconds=draw.randrange(20_000))
    elapsed = int(draw.lognormvariate(7, 1.6)) if state != "PENDING" else 0
    used = f"{draw.randrange(elapsed + 1) * cores // 3600:02d}:{draw.randrange(60):02d}:{draw.randrange(60):02d}"
    gpus = ",gres/gpu:v100=1,gres/gpu=1" if kind["Partition"] == "gpu" else ""
    given = f"billing={cores},cpu={cores}{gpus},mem={4 * cores}G,node=1"
    row = kind | {
        "JobID": job_id, "JobIDRaw": str(raw), "State": state, "Submit": submitted.isoformat(),
        "Start": started.isoformat(), "End": (started + timedelta(seconds=elapsed)).isoformat(),
        "ElapsedRaw": str(elapsed), "TimelimitRaw": draw.choice(("60", "240", "1440", "UNLIMITED", "")),
        "NNodes": "1", "ReqMem": f"{4 * cores}G", "ReqTRES": given, "AllocTRES": given, "TotalCPU": used,
        "AllocCPUS": str(cores),
    }  # fmt: skip
    if state == "PENDING":
        row |= {"Start": "Unknown", "End": "Unknown", "AllocTRES": "", "JobID": f"{job_id.partition('_')[0]}_[9-12%2]"}
    yield _join(row)
    if state == "PENDING":
        return
    for step in ("batch", "extern", "0")[: draw.choice((1, 2, 2, 3))]:
        yield _join(_make_step(draw, row, step))


def _make_step(draw: random.Random, job: dict[str, str], step: str) -> dict[str, str]:
    kept = ("Cluster", "Account", "State", "Submit", "Start", "End", "ElapsedRaw", "NNodes", "AllocTRES", "TotalCPU")
    figures = {} if draw.random() < 0.05 else {"MaxRSS": f"{draw.randrange(2000, 4_000_000)}K"}
    return {name: job[name] for name in kept} | figures | {
        "JobID": f"{job['JobID']}.{step}", "JobIDRaw": f"{job['JobIDRaw']}.{step}",
        "JobName": step if step != "0" else "python", "NTasks": "1", "AllocCPUS": job["AllocCPUS"],
        "AveDiskRead": f"{draw.randrange(9000) / 100:.2f}M", "AveDiskWrite": f"{draw.randrange(900) / 100:.2f}M",
    }  # fmt: skip


def _join(row: dict[str, str]) -> str:
    return "|".join([row.get(name, "") for name in FIELDS]) + "\n"
