"""One job from its recommendation to its bill: on the fake Slurm, on a real cluster, and here."""

import re
import threading
import time
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.slurm.cluster import Cluster
from tests.slurm.fixtures import Slurm

import foretell
from foretell import stores as foretell_stores
from foretell.advice import execution as api_execution
from foretell.advice import site_lookup as api_places
from foretell.advice.execution import JobRequest
from foretell.apps.sweep import build_sweep
from foretell.core.app import App, Submission
from foretell.core.errors import InfeasibleError, NotFoundError
from foretell.core.run import Machine, Run, RunSpec, State, Usage
from foretell.core.site import Billing, Site

pytestmark = pytest.mark.slow

MEGABYTE = 2**20
# Waits until it may continue; records how often it was started.
_APP = """\
name: waiter-{number}
shell: 'echo x >>"$PARAM_app_dir/starts"; until [ -e "$PARAM_app_dir/go" ]; do sleep 0.1; done; sleep 0.$PARAM_n'
parameters: {{n: {{values: [1, 2, 3, 4, 5, 6, 7, 8]}}}}
"""


@pytest.fixture
def app(tmp_path: Path) -> App:
    """An app with runs of a few seconds and 20 MB, and a model of them."""
    folder = tmp_path / "app"
    folder.mkdir()
    # On the shared cluster others have their own.
    (folder / "foretell.yaml").write_text(_APP.format(number=uuid.uuid4().hex[:8]))
    app = foretell.load_app(folder / "foretell.yaml")
    with foretell.open_store(folder / ".foretell/store.db") as store:
        store.save_app(app)
        store.add_runs(_build_run(spec) for spec in build_sweep(app))
    foretell.build(app)
    return app


def _build_run(spec: RunSpec) -> Run:
    usage = Usage(elapsed_s=5 + spec.parameters["n"] / 10, peak_memory_bytes=20 * MEGABYTE)
    return Run(spec=spec, state=State.COMPLETED, usage=usage, machine=Machine(hostname="h", cpu_model="c"))


def price(site: Site) -> Site:
    """The same with prices."""
    billed: dict[str, Any] = {
        "billing": Billing.CORE_HOURS,
        "price_per_core_h": Decimal("0.003"),
        "memory_per_core_bytes": None,
    }
    return replace(site, node_types=tuple(replace(node, **billed) for node in site.node_types))


@pytest.fixture
def site(slurm: Slurm) -> Site:
    return price(api_places.discover_site())


def let_go(app: App) -> None:
    (Path(app.directory) / "go").touch()


def count_starts(app: App) -> int:
    return len((Path(app.directory) / "starts").read_text().split())


def ask(site: Site, **limits: Any) -> JobRequest:
    return JobRequest(configuration={"n": 5}, site=site, **limits)


def test_a_job_that_fits_is_submitted_once_and_stored(app: App, site: Site) -> None:
    let_go(app)
    done = foretell.run(app, ask(site))
    assert done.completed
    assert (len(done.attempts), count_starts(app)) == (1, 1)
    assert done.by_accounting
    with foretell.open_store(Path(app.directory) / ".foretell/store.db") as store:
        kept = store.get_run(done.run.id)
        assert (kept.state, kept.job_id) == (State.COMPLETED, done.run.job_id)
        assert store.batches(app.name) == []
        assert kept.allocated is not None


class _Impatience(threading.Thread):
    """Lets the first attempt run out of time, and later ones complete."""

    def __init__(self, cluster: Cluster, app: App) -> None:
        super().__init__(daemon=True)
        self._cluster, self._app = cluster, app

    def run(self) -> None:
        job_id = self._wait_for_job()
        self._cluster.expire(job_id)
        while self._cluster.run("squeue", "-h", "-j", job_id, "-t", "all", "-o", "%T").strip() in (
            "RUNNING",
            "COMPLETING",
        ):
            time.sleep(0.2)
        let_go(self._app)

    def _wait_for_job(self) -> str:
        while True:
            lines = self._cluster.run("squeue", "-h", "-r", "-t", "running", "-o", "%i|%j").splitlines()
            mine = [line.partition("|")[0] for line in lines if f"|{self._app.name}-" in line]
            if mine:
                return mine[0]
            time.sleep(0.2)


@pytest.mark.slurm
def test_a_request_that_is_too_short_is_raised_and_billed_as_accounted(app: App, slurm_environment: Cluster) -> None:
    site = price(api_places.discover_site())
    impatience = _Impatience(slurm_environment, app)
    impatience.start()
    done = foretell.run(app, ask(site))
    impatience.join()
    assert [attempt.run.state for attempt in done.attempts] == [State.TIMED_OUT, State.COMPLETED]
    first, second = (attempt.asked for attempt in done.attempts)
    assert second.walltime_s > first.walltime_s
    assert replace(second, walltime_s=first.walltime_s) == first
    assert done.paid == sum(bill_of(slurm_environment, attempt.run.job_id) for attempt in done.attempts)
    assert done.paid > 0
    with foretell.open_store(Path(app.directory) / ".foretell/store.db") as store:
        assert store.get_run(done.run.id).state is State.COMPLETED


def bill_of(cluster: Cluster, job_id: str) -> Decimal:
    """What sacct says was allocated, for as long as it says."""
    line = cluster.run("sacct", "-nXP", "-j", job_id, "-o", "ElapsedRaw,AllocCPUS").strip()
    elapsed, cores = map(int, line.split("|"))
    return (Decimal("0.003") * cores * elapsed / 3600).quantize(Decimal("0.000000001"))


@pytest.fixture
def hasty(fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A fake whose minutes are half a second long."""
    monkeypatch.setenv("FAKE_SLURM_MINUTE", "0.5")
    return fake_slurm


@pytest.mark.usefixtures("hasty")
def test_time_is_raised_up_to_the_users_limit(app: App) -> None:
    done = foretell.run(app, ask(price(api_places.discover_site()), max_time_s=240.0, on_limit="double"))
    assert [attempt.asked.walltime_s for attempt in done.attempts] == [60.0, 120.0, 240.0]
    assert not done.completed
    assert done.why_stopped == "it ran out of time, and 4 min 00 s is the most that may be requested"
    assert {attempt.asked.memory_bytes for attempt in done.attempts} == {done.attempts[0].asked.memory_bytes}


@pytest.mark.usefixtures("hasty")
def test_what_could_cost_too_much_is_not_asked_for(app: App) -> None:
    site = price(api_places.discover_site())
    done = foretell.run(app, ask(site, max_cost=Decimal("0.00006"), on_limit="double"))
    assert [attempt.run.state for attempt in done.attempts] == [State.TIMED_OUT]
    assert "is the limit" in done.why_stopped
    assert done.paid <= Decimal("0.00006")


@pytest.mark.usefixtures("hasty")
def test_stop_means_one_attempt(app: App) -> None:
    done = foretell.run(app, ask(price(api_places.discover_site()), on_limit="stop"))
    assert len(done.attempts) == 1
    assert done.run.state is State.TIMED_OUT


def change(app: App, shell: str) -> App:
    """The app with another program, for which its stored runs count, too."""
    changed = replace(app, shell=shell)
    with foretell_stores.open_store(Path(app.directory) / ".foretell" / "store.db") as store:
        store.save_app(changed)
    return changed


def test_memory_is_raised_and_time_is_not(app: App, fake_slurm: FakeSlurm) -> None:
    shell = "python3 -c 'b = bytearray(90 << 20); import time; time.sleep(1)'"
    hungry = change(app, shell)
    done = foretell.run(hungry, ask(price(api_places.discover_site()), on_limit="double", walltime_s=3600.0))
    states = [attempt.run.state for attempt in done.attempts]
    assert states[-1] is State.COMPLETED
    assert set(states[:-1]) == {State.OUT_OF_MEMORY}
    assert {attempt.asked.walltime_s for attempt in done.attempts} == {3600.0}
    asked = [attempt.asked.memory_bytes or 0 for attempt in done.attempts]
    assert asked == sorted(set(asked))


def test_a_failure_is_not_repaired(app: App, site: Site) -> None:
    done = foretell.run(change(app, "exit 3"), ask(site))
    assert (len(done.attempts), done.run.state, done.run.exit_code) == (1, State.FAILED, 3)


def test_it_runs_here_as_well(app: App) -> None:
    let_go(app)
    done = foretell.run(app, ask(api_places.find_site("local")))
    assert done.completed
    assert not done.by_accounting
    assert done.paid == 0


@pytest.fixture
def left_behind(app: App, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> App:
    """A job that somebody submitted and left."""

    def leave(*_: object) -> None:
        if (Path(app.directory) / "starts").exists():
            raise KeyboardInterrupt

    done = foretell.run(app, ask(price(api_places.discover_site())), on_progress=leave)
    assert done.attempts == ()
    assert "the job continues" in done.why_stopped
    return app


def test_the_same_command_resumes_a_job_left_behind(left_behind: App) -> None:
    let_go(left_behind)
    done = foretell.run(left_behind, ask(price(api_places.discover_site())))
    assert done.completed
    assert count_starts(left_behind) == 1


def test_a_preview_submits_nothing(app: App, fake_slurm: FakeSlurm) -> None:
    recommendation, script = api_execution.preview(app, ask(price(api_places.discover_site())))
    assert f"--partition={recommendation.picked.allocation.partition}" in script
    assert "PARAM_n=5" in script
    assert fake_slurm.run("squeue", "-h", "-t", "all") == ""


@pytest.mark.usefixtures("fake_slurm")
@pytest.mark.parametrize(("said", "account"), [(None, "lab42"), ("PAS0002", "PAS0002")])
def test_the_users_account_wins_over_the_sites_and_that_over_the_apps(app: App, said: str | None, account: str) -> None:
    site = replace(price(api_places.discover_site()), script={"account": "lab42"})
    described = replace(app, submission=Submission(account="PAS0001"))
    _, script = api_execution.preview(described, ask(site, submission=Submission(account=said)))
    assert list_options(script, "account") == [account]


@pytest.mark.usefixtures("fake_slurm")
@pytest.mark.parametrize(("said", "cluster"), [({}, "moss"), ({"clusters": "fern"}, "fern")])
def test_the_users_cluster_wins_over_the_sites_and_that_over_the_apps(
    app: App, said: dict[str, str], cluster: str
) -> None:
    site = replace(price(api_places.discover_site()), script={"clusters": "moss"})
    described = replace(app, submission=Submission(cluster="reed"))
    _, script = api_execution.preview(described, ask(site, submission=Submission(options=said)))
    assert list_options(script, "clusters") == [cluster]


def list_options(script: str, name: str) -> list[str]:
    return re.findall(rf"^#SBATCH --{name}=(.*)$", script, re.MULTILINE)


def test_limits_that_nothing_meets_are_an_error_before_anything_is_submitted(app: App, fake_slurm: FakeSlurm) -> None:
    with pytest.raises(InfeasibleError, match="max-time"):
        foretell.run(app, ask(price(api_places.discover_site()), max_time_s=0.5))
    assert fake_slurm.run("squeue", "-h", "-t", "all") == ""


def test_an_unknown_on_limit_is_an_error(app: App) -> None:
    with pytest.raises(NotFoundError, match="least-cost"):
        foretell.run(app, JobRequest(configuration={"n": 5}, on_limit="triple"))
