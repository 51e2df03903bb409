"""Parses the description of a cluster: recorded with 22.05, in the format of 24.11, and malformed."""

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.errors import SchedulerError
from foretell.schedulers.slurm.cluster import (
    Cluster,
    NodeGroup,
    Partition,
    parse_cluster,
    parse_config,
    parse_gpus,
    parse_nodes,
    parse_partitions,
    parse_submit_limit,
    read_cluster,
    read_submit_limit,
)

RECORDED = Path(__file__).parent / "recorded"
MEGABYTE = 2**20


def read(version: str, name: str) -> str:
    return (RECORDED / version / f"{name}.txt").read_text()


def load(version: str) -> Cluster:
    return parse_cluster(read(version, "config"), read(version, "partitions"), read(version, "nodes"))


def find(version: str, partition: str) -> Partition:
    found = load(version).find_partition(partition)
    assert found is not None
    return found


class TestOlder:
    def test_the_cluster(self) -> None:
        assert dataclasses.replace(load("22.05"), partitions=()) == Cluster(
            name="osctest",
            version="22.05.8",
            partitions=(),
            max_array_size=1001,
            max_array_tasks=1001,
            max_jobs=20000,
            min_job_age_s=300,
            accounting=True,
            limits_enforced=False,
        )

    def test_its_partitions(self) -> None:
        assert [partition.name for partition in load("22.05").partitions] == [
            "owens", "owens-gpu", "pitzer", "pitzer-gpu", "debug",
        ]  # fmt: skip

    def test_a_partition_with_its_own_memory_per_core(self) -> None:
        assert find("22.05", "pitzer-gpu") == Partition(
            name="pitzer-gpu",
            max_walltime_s=7 * 86400,
            default_walltime_s=3600,
            default_memory_per_core_bytes=7744 * MEGABYTE,
            node_groups=(
                NodeGroup(
                    count=1,
                    up=1,
                    cores=48,
                    memory_bytes=371712 * MEGABYTE,
                    gpus=2,
                    gpu_model="v100",
                    features=("pitzer", "gpu", "v100", "c48"),
                ),
            ),
        )

    def test_a_partition_without_inherits_the_clusters(self) -> None:
        assert find("22.05", "owens").default_memory_per_core_bytes == 4315 * MEGABYTE

    def test_the_default_partition(self) -> None:
        assert load("22.05").default_partition == find("22.05", "owens")

    def test_types_of_nodes_are_listed_separately_most_common_first(self) -> None:
        assert [(group.count, group.cores) for group in find("22.05", "debug").node_groups] == [(2, 28), (1, 48)]


class TestNewer:
    def test_the_cluster(self) -> None:
        cluster = load("24.11")
        assert (cluster.name, cluster.version, cluster.accounting) == ("fern", "24.11.5", True)
        assert (cluster.max_array_size, cluster.max_array_tasks, cluster.max_jobs) == (10001, 2000, 120000)
        assert cluster.limits_enforced
        assert cluster.min_job_age_s == 600

    def test_limits_of_a_partition(self) -> None:
        thin, gpu, mig = (find("24.11", name) for name in ("thin", "gpu", "mig"))
        assert (thin.default, thin.max_nodes, thin.max_walltime_s, thin.qos) == (True, 8, 3 * 86400, "thin_limits")
        assert (gpu.max_cores_per_node, gpu.max_memory_per_node_bytes) == (124, 1000000 * MEGABYTE)
        assert (gpu.default_walltime_s, gpu.max_nodes, gpu.qos) == (None, None, None)
        assert mig.default_memory_per_core_bytes is None

    def test_no_time_limit(self) -> None:
        assert find("24.11", "whole").max_walltime_s is None

    def test_whole_nodes(self) -> None:
        assert [name for name in ("thin", "gpu", "whole") if find("24.11", name).whole_node] == ["whole"]

    def test_closed_partitions(self) -> None:
        assert [partition.name for partition in load("24.11").partitions if not partition.up] == ["old", "admin"]

    def test_nodes_of_one_type_are_counted_together_in_any_state(self) -> None:
        common, large = find("24.11", "thin").node_groups
        assert (common.count, common.up, common.memory_bytes) == (46, 42, 386000 * MEGABYTE)
        assert (large.count, large.up, large.features) == (2, 2, ("genoa", "ib", "bigmem"))

    def test_hardware_threads_are_recognized(self) -> None:
        (whole,) = find("24.11", "whole").node_groups
        assert (whole.cores, whole.threads_per_core, whole.features) == (128, 2, ())

    def test_gpus(self) -> None:
        kinds = [(group.gpus, group.gpu_model) for name in ("gpu", "mig") for group in find("24.11", name).node_groups]
        assert kinds == [(4, "a100"), (2, "v100"), (11, None)]

    def test_a_partition_may_be_empty(self) -> None:
        assert find("24.11", "empty").node_groups == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(null)", (0, None)),
        ("gpu", (1, None)),
        ("gpu:2", (2, None)),
        ("gpu:h100", (1, "h100")),
        ("gpu:v100:2(S:0-1)", (2, "v100")),
        ("gpu:a100_3g.20gb:4", (4, "a100_3g.20gb")),
        ("gpu:1g.10gb:7(S:0,2)", (7, "1g.10gb")),
        ("gpu:a100:2(S:0,2),gpu:t4:1", (3, None)),
        ("craynetwork:4,gpu:8(S:0-1),shard:64", (8, None)),
        ("mps:v100:400", (0, None)),
        ("gpumem:4", (0, None)),
    ],
)
def test_gpus_of_a_node(text: str, expected: tuple[int, str | None]) -> None:
    assert parse_gpus(text) == expected


@pytest.mark.parametrize("state", ["down", "down*", "drain", "drng", "DRAIN$", "fail", "unk", "down~"])
def test_nodes_that_accept_no_jobs(state: str) -> None:
    (group,) = parse_nodes(f"p|3|8|1:8:1|1000|{state}|(null)|(null)\n")["p"]
    assert (group.count, group.up) == (3, 0)


@pytest.mark.parametrize("state", ["idle", "idle~", "mix", "alloc+", "comp", "resv", "maint", "plnd", "mix-", "boot^"])
def test_nodes_that_accept_jobs(state: str) -> None:
    (group,) = parse_nodes(f"p|3|8|1:8:1|1000|{state}|(null)|(null)\n")["p"]
    assert (group.count, group.up) == (3, 3)


class TestConfiguration:
    def test_without_accounting(self) -> None:
        for word in ("accounting_storage/none", "(null)"):
            config = read("22.05", "config").replace("accounting_storage/slurmdbd", word)
            assert not parse_cluster(config, "", "").accounting

    def test_a_scheduler_of_whole_nodes(self) -> None:
        config = read("22.05", "config").replace("select/cons_tres", "select/linear")
        cluster = parse_cluster(config, read("22.05", "partitions"), read("22.05", "nodes"))
        assert all(partition.whole_node for partition in cluster.partitions)

    def test_without_arrays(self) -> None:
        config = read("22.05", "config").replace("= 1001", "= 0")
        assert parse_cluster(config, "", "").max_array_tasks == 0

    def test_a_missing_setting_is_named(self) -> None:
        config = read("22.05", "config").replace("MaxArraySize", "MaximalArraySize")
        with pytest.raises(SchedulerError, match="does not print MaxArraySize"):
            parse_cluster(config, "", "")

    def test_unreadable_output_is_quoted(self) -> None:
        with pytest.raises(SchedulerError, match=r"not a time in Slurm's format.*MaxTime=soon"):
            parse_partitions("PartitionName=p MaxTime=soon State=UP\n")
        with pytest.raises(SchedulerError, match=r"cannot read the output of sinfo.*p\|many"):
            parse_nodes("p|many|8|1:8:1|1000|idle|(null)|(null)\n")
        with pytest.raises(SchedulerError, match="sinfo"):
            parse_nodes("slurm_load_node error\n")

    def test_a_value_with_an_equals_sign(self) -> None:
        assert parse_config("AuthAltParameters       = jwt_key=/etc/key\n") == {"AuthAltParameters": "jwt_key=/etc/key"}

    @given(st.text())
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        for parse in (parse_nodes, parse_partitions, lambda config: parse_cluster(config, "", "")):
            with suppress(SchedulerError):  # and nothing else
                parse(text)


class TestSubmitLimit:
    @pytest.mark.parametrize(
        ("account", "partition", "qos", "partition_qos", "expected"),
        [
            pytest.param("lab42", None, None, None, 500, id="of the association"),
            pytest.param("LAB42", None, None, None, 500, id="of the association, however it is written"),
            pytest.param("lab42", "gpu", None, None, 64, id="of the association for that partition"),
            pytest.param("lab42", "thin", None, "thin_limits", 1000, id="the partition's QOS comes first"),
            pytest.param("lab42", "gpu", "gpu_high", "thin_limits", 200, id="unless the job's is put over it"),
            pytest.param("courses", None, None, None, 0, id="none at all"),
            pytest.param("open", None, None, None, 50, id="the only QOS is the default, its lowest limit holds"),
            pytest.param("open", None, "normal", None, None, id="no limit"),
            pytest.param("other", None, None, None, None, id="an account that is not the user's"),
        ],
    )
    def test_which_limit_applies(
        self, account: str, partition: str | None, qos: str | None, partition_qos: str | None, expected: int | None
    ) -> None:
        limit = parse_submit_limit(
            read("24.11", "associations"),
            read("24.11", "qos"),
            account=account,
            partition=partition,
            qos=qos,
            partition_qos=partition_qos,
        )
        assert limit == expected

    def test_the_limit_of_the_whole_account(self) -> None:
        limit = parse_submit_limit("lab42|||||normal\n", "", of_account=read("24.11", "account"), account="lab42")
        assert limit == 3000

    def test_an_older_cluster_without_limits(self) -> None:
        text = read("22.05", "associations"), read("22.05", "qos")
        assert parse_submit_limit(*text, account="pas0001") is None

    def test_without_associations(self) -> None:
        assert parse_submit_limit("", "") is None

    def test_unreadable_output_is_quoted(self) -> None:
        with pytest.raises(SchedulerError, match=r"sacctmgr.*some"):
            parse_submit_limit("lab42||some|||normal\n", "", account="lab42")


class TestPrograms:
    """Small programs that print recorded output replace Slurm's."""

    @pytest.fixture
    def programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        texts = RECORDED / "24.11"
        write(tmp_path / "sinfo", f"cat {texts}/nodes.txt")
        write(
            tmp_path / "scontrol",
            f'case "$*" in *config) cat {texts}/config.txt;; *) cat {texts}/partitions.txt;; esac',
        )
        return tmp_path

    def test_a_cluster_is_read(self, programs: Path) -> None:
        assert read_cluster() == load("24.11")

    def test_another_cluster_is_selected_by_name(self, programs: Path) -> None:
        write(programs / "sinfo", f'echo "$*" > {programs}/said; cat {RECORDED}/24.11/nodes.txt')
        read_cluster(cluster="moss")
        assert "--clusters=moss" in (programs / "said").read_text()

    def test_no_sacctmgr_means_no_known_limit(self, programs: Path) -> None:
        write(programs / "sacctmgr", "echo 'sacctmgr: error: Problem talking to the database' >&2; exit 1")
        assert read_submit_limit(read_cluster(), account="lab42") is None

    def test_a_limit_is_read(self, programs: Path) -> None:
        texts = RECORDED / "24.11"
        choose = f"*user=) cat {texts}/account.txt;; *assoc*) cat {texts}/associations.txt;; *) cat {texts}/qos.txt;;"
        write(programs / "sacctmgr", f'case "$*" in *"user= "*) cat {texts}/account.txt;; {choose} esac')
        assert read_submit_limit(read_cluster(), account="lab42", partition="gpu") == 64
        assert read_submit_limit(read_cluster(), account="lab42") == 1000

    def test_the_users_account_is_the_default(self, programs: Path) -> None:
        rows = r"lab42||7|||normal\nopen||9|||normal\n"
        write(programs / "sacctmgr", f'case "$*" in *DefaultAccount*) echo open;; *assoc*) printf "{rows}";; esac')
        assert read_submit_limit(read_cluster(), partition="gpu") == 9

    def test_limits_that_are_not_enforced_are_ignored(self, programs: Path) -> None:
        write(programs / "scontrol", f'case "$*" in *config) cat {RECORDED}/22.05/config.txt;; esac')
        assert read_submit_limit(read_cluster(), account="lab42") is None

    def test_without_slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SchedulerError, match="log in to a machine of a Slurm cluster"):
            read_cluster()


@pytest.mark.slurm
@pytest.mark.usefixtures("slurm_environment")
class TestRealCluster:
    def test_its_own_description(self) -> None:
        cluster = read_cluster()
        assert cluster.max_array_size == 1001
        assert cluster.accounting
        assert cluster.limits_enforced
        assert {"owens", "pitzer-gpu"} <= {partition.name for partition in cluster.partitions}
        found = cluster.find_partition("pitzer-gpu")
        assert found is not None
        assert [(group.cores, group.gpus, group.gpu_model) for group in found.node_groups] == [(48, 2, "v100")]

    def test_how_many_jobs_may_be_submitted(self) -> None:
        assert read_submit_limit(read_cluster(), account="small") == 20
        assert read_submit_limit(read_cluster(), account="PAS0001") is None


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
