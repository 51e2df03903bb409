"""The fake ``sacctmgr``, which shows associations and qualities of service."""

import sys

from tests.fake_slurm.machine import ACCOUNTS, find_max_submit
from tests.fake_slurm.options import parse_options
from tests.fake_slurm.state import USER, RefusalError, find_fault

FLAGS = "noheader parsable2 readonly quiet"
SHORT = "n=noheader P=parsable2 r=readonly Q=quiet"
_ASSOCIATION = (
    "Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|GrpTRESMins|MaxJobs|"
    "MaxTRES|MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|GrpTRESRunMins"
)
_QOS = (
    "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|"
    "GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|"
    "MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES"
)
# Other words for the same column.
_ALSO = {
    "maxsubmitjobs": "MaxSubmit",
    "grpsubmitjobs": "GrpSubmit",
    "defaultqos": "Def QOS",
    "maxsubmitjobsperuser": "MaxSubmitPU",
    "maxsubmitjobspu": "MaxSubmitPU",
    "maxjobsperuser": "MaxJobsPU",
}
_DOWN = (
    "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
    "host:127.0.0.1:6819: Connection refused\nsacctmgr: error: Sending PersistInit msg: Connection refused"
)


def main(words: list[str]) -> None:
    options, rest = parse_options(words, program="sacctmgr", names="", flags=FLAGS, short=SHORT)
    if find_fault("accounting-off") is not None:
        raise RefusalError(
            "You are not running a supported accounting_storage plugin\n"
            "Only 'accounting_storage/slurmdbd' is supported."
        )
    if find_fault("sacct-down") is not None:
        raise RefusalError(_DOWN)
    if "parsable2" not in options or rest[0] not in ("show", "list"):
        raise RefusalError("sacctmgr: error: this fake only shows, and speaks --parsable2 only")
    asked = {name.lower(): value for name, _, value in (word.partition("=") for word in rest[2:])}
    if rest[1].startswith("assoc"):
        columns, rows = _ASSOCIATION.split("|"), _build_associations(asked)
    else:
        columns, rows = (
            _QOS.split("|"),
            [{"Name": "normal", "Priority": "0", "GraceTime": "00:00:00", "PreemptMode": "cluster"}],
        )
    fields = _get_fields(asked.get("format", ",".join(columns)), columns)
    lines = [] if "noheader" in options else ["|".join(fields)]
    lines += ["|".join(row.get(field, "") for field in fields) for row in rows]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _build_associations(asked: dict[str, str]) -> list[dict[str, str]]:
    users = asked.get("user", asked.get("users", USER)).split(",")
    accounts = asked.get("account", asked.get("accounts", ",".join(ACCOUNTS))).lower().split(",")
    return [
        {
            "Cluster": "osctest",
            "Account": account,
            "User": USER,
            "Share": "1",
            "MaxSubmit": str(find_max_submit(account) or ""),
            "QOS": "normal",
        }
        for account in ACCOUNTS
        if account in accounts and USER in users
    ]


def _get_fields(text: str, columns: list[str]) -> list[str]:
    known = {column.lower(): column for column in columns} | _ALSO
    words = [word.partition("%")[0].lower() for word in text.split(",")]
    unknown = next((word for word in words if word not in known), None)
    if unknown is not None:
        raise RefusalError(f"sacctmgr: error: Unknown field '{unknown}'")
    return [known[word] for word in words]
