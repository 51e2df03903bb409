"""Both clusters behave as other tests assume: jobs of every state, on the fake and on the real one."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.slurm.cluster import NODES, Cluster, ClusterError
from tests.slurm.fixtures import Slurm, start

BEGIN = "sleep 1; echo begun"
EAT = "b = bytearray(300 << 20); b[::4096] = b'1' * len(b[::4096]); import time; time.sleep(20)"


def submit(*words: str) -> str:
    command = ["sbatch", "--parsable", "--output=/dev/null", "--mem=100M", "--time=5", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def refuse(*words: str) -> str:
    done = subprocess.run(["sbatch", "--parsable", *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def ask(*command: str) -> list[list[str]]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("|") for line in done.stdout.splitlines()]


def account(job_id: str, fields: str = "JobID,State,ExitCode", *words: str) -> list[list[str]]:
    return ask("sacct", "-nP", "-j", job_id, "-o", fields, *words)


def list_terminated(job_id: str) -> list[list[str]]:
    """Return how a terminated step may end: by its node's report or by its script's, whichever Slurm gets first."""
    return [[f"{job_id}.batch", "CANCELLED", "0:15"], [f"{job_id}.batch", "FAILED", "15:0"]]


def wait_for(is_so: Callable[[], object], *, patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_begun(log: Path) -> None:
    """Wait for the output of ``BEGIN``: a job that is killed before Slurm has started it ends in another state."""
    wait_for(lambda: log.exists() and log.read_text())


def wait_for_state(job_id: str, state: str) -> None:
    """Wait until accounting has jobs in a state, and all of their particulars: ends may be written before starts."""
    wait_for(lambda: {(row[0], bool(row[1])) for row in account(job_id, "State,TimelimitRaw", "-X")} == {(state, True)})


def get_keys(text: str) -> list[str]:
    """Return the names in each line, without values; the first line may have a date."""
    return [line.partition("=")[0] for line in text.splitlines()[1:] if "=" in line]


def queue(job_id: str) -> list[str]:
    return [row[0] for row in ask("squeue", "-h", "-r", "-t", "all", "-j", job_id, "-o", "%T")]


def test_a_completed_job_is_accounted_with_its_batch_step(slurm: Slurm) -> None:
    job_id = submit("--wrap", "true", "--account=PAS0002", "--job-name=a b", "--comment=x=1")
    wait_for_state(job_id, "COMPLETED")
    fields = (
        "JobID,JobName,User,Account,Partition,State,ExitCode,Timelimit,TimelimitRaw,ReqMem,AllocTRES,NNodes,Comment"
    )
    job, step = account(job_id, fields)[:2]
    tres = "billing=1,cpu=1,mem=100M,node=1"
    assert job == [
        job_id,
        "a b",
        "root",
        "pas0002",
        "owens",
        "COMPLETED",
        "0:0",
        "00:05:00",
        "5",
        "100M",
        tres,
        "1",
        "x=1",
    ]
    assert step[:9] == [f"{job_id}.batch", "batch", "", "pas0002", "", "COMPLETED", "0:0", "", ""]


@pytest.mark.parametrize(("script", "code"), [("exit 3", "3:0"), ("kill -SEGV $$", "0:11"), ("nosuch", "127:0")])
def test_a_job_that_fails_has_its_code_or_signal(slurm: Slurm, script: str, code: str) -> None:
    job_id = submit("--wrap", script)
    wait_for_state(job_id, "FAILED")
    assert [row[2] for row in account(job_id)[:2]] == [code, code]


def test_a_job_whose_output_cannot_be_written_fails(slurm: Slurm) -> None:
    job_id = submit("--wrap", "true", "--output=/nonexistent/log")
    wait_for_state(job_id, "FAILED")
    assert account(job_id)[0][2] == "0:53"


def test_a_running_job_is_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    job_id = submit(f"--output={tmp_path}/log", "--wrap", f"{BEGIN}; sleep 60")
    wait_until_begun(tmp_path / "log")
    assert queue(job_id) == ["RUNNING"]
    slurm.run("scancel", job_id)
    wait_for_state(job_id, "CANCELLED by 0")
    wait_for(lambda: account(f"{job_id}.batch", "State") not in ([], [["RUNNING"]]))
    assert account(job_id)[0] == [job_id, "CANCELLED by 0", "0:0"]
    assert account(job_id)[1] in list_terminated(job_id)


def test_elements_of_an_array_have_rows_and_logs_of_their_own(slurm: Slurm, tmp_path: Path) -> None:
    script = 'echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID"'
    job_id = submit("--wrap", script, "--array=1,5-7", f"--output={tmp_path}/%A-%a-%x", "--job-name=n")
    wait_for_state(job_id, "COMPLETED")
    wait_for(lambda: len(account(job_id, "JobID", "-X")) == 4)
    rows = account(job_id, "JobID,JobIDRaw", "-X")
    assert [row[0] for row in rows] == [f"{job_id}_{index}" for index in (1, 5, 6, 7)]
    for index, (_, raw) in zip((1, 5, 6, 7), rows, strict=True):
        assert (tmp_path / f"{job_id}-{index}-n").read_text() == f"{job_id} {index} {raw}\n"


def test_queued_elements_are_one_row_and_vanish_when_cancelled_one_by_one(slurm: Slurm) -> None:
    job_id = submit("--wrap", "true", "--array=0-5", "--hold")
    wait_for(lambda: account(job_id))
    assert account(job_id) == [[f"{job_id}_[0-5]", "PENDING", "0:0"]]
    assert ask("squeue", "-h", "-j", job_id, "-o", "%i|%T|%r") == [[f"{job_id}_[0-5]", "PENDING", "JobHeldUser"]]
    slurm.run("scancel", f"{job_id}_3")
    wait_for(lambda: ask("squeue", "-h", "-j", job_id, "-o", "%i") == [[f"{job_id}_[0-2,4-5]"]])
    slurm.run("scancel", job_id)
    wait_for_state(job_id, "CANCELLED by 0")
    assert account(job_id, "State,Start,NodeList") == [["CANCELLED by 0", "None", "None assigned"]]


def test_command_line_options_override_those_of_the_script(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH --time=7\n#SBATCH --job-name='two words'\n# more\n#SBATCH --cpus-per-task=2\n"
        "true\n#SBATCH --mem=1\n"
    )
    job_id = submit("--time=1:00:00", str(script))
    wait_for_state(job_id, "COMPLETED")
    assert account(job_id, "JobName,TimelimitRaw,AllocCPUS,ReqMem", "-X") == [["two words", "60", "2", "100M"]]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--account=nope"], "Invalid account or account/partition combination specified"),
        (["--partition=nope"], "sbatch: error: invalid partition specified: nope"),
        (["--array=0-1001"], "Invalid job array specification"),
        (["--mem=999G"], "Memory specification can not be satisfied"),
        (["--time=300:00:00"], "Requested time limit is invalid (missing or exceeds some limit)"),
        (["--cpus-per-task=64"], "More processors requested than permitted"),
        (["--nodes=9"], "Node count specification invalid"),
        (["--time=x"], "sbatch: error: Invalid --time specification"),
        (["--account=small", "--array=0-20"], "sbatch: error: AssocMaxSubmitJobLimit"),
    ],
)
def test_refusals_have_a_reason(slurm: Slurm, words: list[str], answer: str) -> None:
    assert answer in refuse(*words, "--wrap", "true")


def test_unknown_jobs(slurm: Slurm) -> None:
    assert account("999999") == []
    slurm.run("scancel", "999999")
    done = subprocess.run(["squeue", "-h", "-j", "999999"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "slurm_load_jobs error: Invalid job id specified\n")


def test_limits_can_be_read(slurm: Slurm) -> None:
    assert any(
        line.split() == ["MaxArraySize", "=", "1001"] for line in slurm.run("scontrol", "show", "config").splitlines()
    )
    rows = ask("sacctmgr", "-nP", "show", "assoc", "user=root", "account=small,pas0001", "format=Account,MaxSubmit")
    assert sorted(rows) == [["pas0001", ""], ["small", "20"]]


def test_partitions_and_nodes_look_the_same(fake_slurm: FakeSlurm) -> None:
    lines = ask("sinfo", "-h", "-o", "%P|%l|%D|%c|%m|%G|%N|%f")
    assert lines[0] == ["owens*", "7-00:00:00", "2", "28", "120820", "(null)", "o[0001-0002]", "owens,cpu,c6420"]
    assert lines[3] == ["pitzer-gpu", "7-00:00:00", "1", "48", "371712", "gpu:v100:2", "p0301", "pitzer,gpu,v100,c48"]
    assert fake_slurm.run("scontrol", "-o", "show", "node", "p0301").startswith(
        "NodeName=p0301 Arch=x86_64 CoresPerSocket=24"
    )


@pytest.mark.slurm
def test_the_output_of_the_fake_has_the_format_of_the_real_one(slurm_environment: Cluster, tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "fake")
    fake.folder.mkdir()
    for command in (
        ("sinfo", "-h", "-p", "owens,owens-gpu,pitzer,pitzer-gpu", "-o", "%P|%a|%l|%D|%c|%m|%G|%N|%f"),
        ("sacctmgr", "-P", "show", "assoc", "user=root", "account=small,pas0001,pas0002"),
        ("scontrol", "show", "partition", "pitzer-gpu"),
    ):
        assert fake.run(*command) == slurm_environment.run(*command)
    for what in ("config", "node"):
        mine, real = fake.run("scontrol", "show", what), slurm_environment.run("scontrol", "show", what)
        assert get_keys(mine) == get_keys(real)


@pytest.mark.slurm
@pytest.mark.slow
def test_a_real_job_over_its_time_or_memory(slurm_environment: Cluster, tmp_path: Path) -> None:
    over = submit(f"--output={tmp_path}/log", "--wrap", f'python3 -c "{EAT}"')
    late = submit(f"--output={tmp_path}/late", "--wrap", f"{BEGIN}; sleep 600")
    wait_until_begun(tmp_path / "late")
    slurm_environment.expire(late)
    wait_for_state(over, "FAILED")
    assert account(over)[:2] == [[over, "FAILED", "0:9"], [f"{over}.batch", "CANCELLED by 0", "0:9"]]
    assert "exceeded memory limit" in (tmp_path / "log").read_text()
    slurm_environment.mark_out_of_memory(over)
    assert account(over)[:2] == [[over, "OUT_OF_MEMORY", "0:125"], [f"{over}.batch", "OUT_OF_MEMORY", "0:125"]]
    wait_for_state(late, "TIMEOUT")
    assert account(late)[0] == [late, "TIMEOUT", "0:0"]
    assert account(late)[1] in list_terminated(late)
    assert "DUE TO TIME LIMIT" in (tmp_path / "late").read_text()


def test_a_fake_job_over_its_time(fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLURM_MINUTE", "0.2")
    late = submit(f"--output={tmp_path}/late", "--time=1", "--wrap", "sleep 600")
    wait_for_state(late, "TIMEOUT")
    assert account(late)[:2] == [[late, "TIMEOUT", "0:0"], [f"{late}.batch", "CANCELLED", "0:15"]]
    assert "DUE TO TIME LIMIT" in (tmp_path / "late").read_text()


def test_a_fake_job_over_its_memory(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    over = submit(f"--output={tmp_path}/log", "--wrap", f'{sys.executable} -c "{EAT}"')
    wait_for_state(over, "OUT_OF_MEMORY")
    assert account(over)[:2] == [[over, "OUT_OF_MEMORY", "0:125"], [f"{over}.batch", "OUT_OF_MEMORY", "0:125"]]
    assert "oom_kill event" in (tmp_path / "log").read_text()


def test_fake_usage_is_what_the_job_used(fake_slurm: FakeSlurm) -> None:
    job_id = submit("--mem=1G", "--wrap", f'{sys.executable} -c "{EAT.replace("sleep(20)", "sleep(0)")}"')
    wait_for_state(job_id, "COMPLETED")
    rows = account(job_id, "JobID,MaxRSS", "--noconvert")
    assert [row[1] for row in rows[::2]] == ["", "0"]
    assert 300 << 20 < int(rows[1][1]) < 400 << 20


def test_a_failed_fake_node_requeues_jobs(fake_slurm: FakeSlurm) -> None:
    again = submit("--requeue", "--wrap", '[ -n "$SLURM_RESTART_COUNT" ] || sleep 60')
    lost = submit("--no-requeue", "--wrap", "sleep 60")
    wait_for(lambda: queue(again) == queue(lost) == ["RUNNING"])
    fake_slurm.run("scontrol", "update", "NodeName=o0001", "State=DOWN", "Reason=test")
    wait_for_state(lost, "NODE_FAIL")
    wait_for_state(again, "COMPLETED")
    assert [row[1] for row in account(again, "JobID,State", "-X", "-D")] == ["NODE_FAIL", "COMPLETED"]


def test_the_fake_runs_no_more_jobs_at_once_than_it_has_slots(fake_slurm: FakeSlurm) -> None:
    job_id = submit("--array=0-9", "--wrap", "sleep 0.2")
    most = 0
    while "PENDING" in (states := queue(job_id)):
        most = max(most, states.count("RUNNING"))
    assert most == 4


def test_many_submit_to_the_fake_at_once(fake_slurm: FakeSlurm) -> None:
    command = ["sbatch", "--parsable", "--output=/dev/null", "--array=0-1", "--wrap", "true"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    ids = {process.communicate()[0].strip() for process in started}
    assert len(ids) == 8
    fake_slurm.wait_until_idle()
    assert len(account(",".join(ids), "JobID,State", "-X")) == 16


class TestFaults:
    def test_refusal(self, fake_slurm: FakeSlurm) -> None:
        fake_slurm.set_fault("refuse", "sbatch: error: Batch job submission failed: no")
        assert refuse("--wrap", "true") == "sbatch: error: Batch job submission failed: no\n"
        fake_slurm.clear_fault("refuse")
        assert submit("--wrap", "true") == "1"

    @pytest.mark.parametrize(
        ("fault", "command", "answer"),
        [
            ("sacct-down", "sacct -nP", "sacct: error: Problem talking to the database: Connection refused"),
            ("accounting-off", "sacct -nP", "Slurm accounting storage is disabled"),
            ("accounting-off", "sacctmgr -nP show assoc", "Only 'accounting_storage/slurmdbd' is supported."),
            ("squeue-down", "squeue -h", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
            (
                "slurmctld-down",
                "squeue -h",
                "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            ),
            ("slurmctld-down", "scontrol ping", "** RESTORE SLURMCTLD DAEMON TO SERVICE **"),
            (
                "slurmctld-down",
                "sbatch --wrap true",
                "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            ),
        ],
    )
    def test_no_response(self, fake_slurm: FakeSlurm, fault: str, command: str, answer: str) -> None:
        fake_slurm.set_fault(fault)
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert answer in done.stderr.splitlines()

    def test_an_unknown_state(self, fake_slurm: FakeSlurm) -> None:
        fake_slurm.set_fault("unknown-state", "MELTED")
        job_id = submit("--wrap", "true")
        fake_slurm.wait_until_idle()
        assert account(job_id, "State", "-X") == [["MELTED"]]

    def test_accounting_that_lags(self, fake_slurm: FakeSlurm) -> None:
        fake_slurm.set_fault("lag", "3600")
        job_id = submit("--wrap", "true")
        fake_slurm.wait_until_idle()
        assert account(job_id) == []
        fake_slurm.set_fault("lag", "0")
        assert account(job_id, "State", "-X") == [["COMPLETED"]]

    def test_a_job_submitted_without_a_reply(self, fake_slurm: FakeSlurm) -> None:
        fake_slurm.set_fault("kill-after-submit")
        done = subprocess.run(
            ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "true"], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")
        fake_slurm.wait_until_idle()
        assert account("1", "State", "-X") == [["COMPLETED"]]

    def test_a_limit_counts_queued_and_running_jobs(self, fake_slurm: FakeSlurm) -> None:
        fake_slurm.set_fault("max-submit", "3")
        submit("--hold", "--array=0-1", "--wrap", "true")
        assert "AssocMaxSubmitJobLimit" in refuse("--hold", "--array=0-1", "--wrap", "true")
        assert submit("--hold", "--wrap", "true") == "2"

    def test_incomplete_rows(self, fake_slurm: FakeSlurm) -> None:
        fake_slurm.set_fault("half-rows")
        job_id = submit("--wrap", "true")
        fake_slurm.wait_until_idle()
        fields = "JobName,State,Partition,TimelimitRaw,ReqMem,SubmitLine,User"
        assert account(job_id, fields, "-X") == [["allocation", "COMPLETED", "", "", "16?", "", "root"]]

    def test_an_unknown_fault_is_an_error(self, fake_slurm: FakeSlurm) -> None:
        with pytest.raises(ValueError, match="known faults: accounting-off"):
            fake_slurm.set_fault("nope")


def test_nothing_of_the_fake_survives_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(tmp_path / "fake")
    fake.folder.mkdir()
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    submit("--array=0-9", "--wrap", "trap '' TERM; sleep 600")
    wait_for(lambda: fake._find_processes())
    fake.end()
    assert fake._find_processes() == []


@pytest.mark.slurm
class TestOwnCluster:
    def test_a_restarted_controller_keeps_its_jobs(self, own_slurm_environment: Cluster) -> None:
        job_id = submit("--hold", "--wrap", "true")
        own_slurm_environment.wait_until_saved()
        own_slurm_environment.kill("slurmctld")
        done = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "is DOWN" in done.stdout
        own_slurm_environment.start_daemon("slurmctld")
        assert queue(job_id) == ["PENDING"]

    def test_its_accounting_can_be_down_for_a_while(self, own_slurm_environment: Cluster) -> None:
        own_slurm_environment.kill("slurmdbd")
        job_id = submit("--wrap", "true")
        done = subprocess.run(["sacct", "-nP"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "Problem talking to the database: Connection refused" in done.stderr
        own_slurm_environment.start_daemon("slurmdbd")
        wait_for_state(job_id, "COMPLETED")

    def test_a_node_can_die_and_come_back(self, own_slurm_environment: Cluster) -> None:
        own_slurm_environment.kill("o0002")
        assert not own_slurm_environment.is_running("o0002")
        own_slurm_environment.start_daemon("o0002")
        assert own_slurm_environment.is_running("o0002")

    @pytest.mark.slow
    def test_a_node_set_down_requeues_what_may_be_requeued(self, own_slurm_environment: Cluster) -> None:
        again = submit("--requeue", "--nodelist=o0002", "--wrap", '[ -n "$SLURM_RESTART_COUNT" ] || sleep 60')
        lost = submit("--no-requeue", "--nodelist=o0002", "--wrap", "sleep 60")
        wait_for(lambda: queue(again) == queue(lost) == ["RUNNING"])
        own_slurm_environment.run("scontrol", "update", "NodeName=o0002", "State=DOWN", "Reason=test")
        wait_for_state(lost, "NODE_FAIL")
        own_slurm_environment.run("scontrol", "update", "NodeName=o0002", "State=RESUME")
        wait_for_state(again, "COMPLETED")
        assert [row[1] for row in account(again, "JobID,State", "-X", "-D")] == ["NODE_FAIL", "COMPLETED"]


@pytest.mark.slurm
def test_a_cluster_without_accounting(bare_slurm_environment: Cluster) -> None:
    job_id = submit("--wrap", "true")
    wait_for(lambda: queue(job_id) == ["COMPLETED"])
    done = subprocess.run(["sacct", "-nP", "-j", job_id], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Slurm accounting storage is disabled\n")


@pytest.mark.slurm
def test_a_cluster_ends_with_the_process_it_was_started_for(real_slurm: Cluster, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    program = textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from tests.slurm.cluster import Cluster
        cluster = Cluster(Path(sys.argv[1]), accounting=False)
        cluster.keep_until_end_of(os.getpid())
        cluster.start()
        print("up", flush=True)
        time.sleep(600)
    """)
    folder = Path(f"/tmp/slurm-{os.getpid()}-end")
    with subprocess.Popen(
        [sys.executable, "-c", program, folder], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
    cluster = Cluster(folder)
    wait_for(lambda: not folder.exists())
    assert not any(cluster.is_running(name) for name in ("slurmctld", *NODES))


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_a_cluster_tests_are_skipped_except_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="needs root"):
        start(Cluster(tmp_path), owner=os.getpid())


def test_a_folder_with_too_long_socket_names_is_refused() -> None:
    with pytest.raises(ClusterError, match="short, plain, absolute path"):
        Cluster(Path("/tmp") / ("x" * 80))
