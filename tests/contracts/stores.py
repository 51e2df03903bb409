"""What every store must do. Inherit, and give the fixture ``store`` (and ``address``, if others can open it too)."""

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from foretell.core.app import App, Domain, Parameter, ParameterType, Phase, ResourceSweep, Scale, Submission
from foretell.core.batch import Batch
from foretell.core.errors import NotFoundError, StoreError
from foretell.core.model_card import Judgement, LeaderboardRow, ModelCard, ModelRecord, Scores
from foretell.core.run import RETRIABLE, Allocation, Machine, Owner, Run, RunSpec, State, Usage
from foretell.core.warning import build_warning
from foretell.stores import RunStore, open_store

ODD_TEXT = "'\"`;--\\ \r\n\t%s {} ünï ☃ 🂡 \u202e␀"
_THREADS = 8
_PROCESSES = 3


def build_spec(number: int = 0, *, app: str = "demo") -> RunSpec:
    return RunSpec(app=app, parameters={"number": number})


def build_run(number: int = 0, *, app: str = "demo", state: State = State.COMPLETED) -> Run:
    return Run(spec=build_spec(number, app=app), state=state, usage=Usage(elapsed_s=1.5 + number))


def build_batch(batch_id: str = "b1") -> Batch:
    return Batch(
        id=batch_id,
        app="demo",
        name=f"demo-{batch_id}",
        directory="/shared/demo",
        submission=Submission(partition="cpu", options={"qos": "low", "exclusive": ""}),
        run_ids=(),
        submitter=build_owner(),
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


def build_owner(token: str = "us") -> Owner:
    return Owner(token=token, hostname="node1", boot_id="b007", pid=2**22, started_at=1_700_000_000.123456)


def build_full_run() -> Run:
    """A run with something, and something odd, in every field."""
    spec = RunSpec(
        app=f"app {ODD_TEXT}",
        parameters={"huge": 10**300, "tiny": 5e-324, "far": float("inf"), "yes": True, "": "", ODD_TEXT: "\0\ud800"},
        allocation=Allocation(cores=4, memory_bytes=2**40, gpus=2, nodes=3, partition=ODD_TEXT, walltime_s=0.1),
        scale=Scale.SCALED_DOWN,
        repetition=7,
    )
    usage = Usage(
        elapsed_s=0.1 + 0.2,
        cpu_s=1e-9,
        peak_memory_bytes=2**63 - 1,
        read_bytes=0,
        written_bytes=2**53 + 1,
        context_switches=3,
        gpu_utilisation=0.5,
        gpu_memory_bytes=2**36,
    )
    machine = Machine(
        hostname=ODD_TEXT, cpu_model="m", cores=8, cpu_mhz=2400.5, memory_bytes=2**41, gpu_model="g", gpus=1, load=0.25,
        extra={"interconnect": "HDR", "sockets": 2, "ratio": 0.5, "shared": False},
    )  # fmt: skip
    return Run(
        spec=spec,
        state=State.FAILED,
        usage=usage,
        phases={"epoch": 0.1, ODD_TEXT: 1e300},
        machine=machine,
        exit_code=-9,
        log_tail=ODD_TEXT * 100,
        reason=ODD_TEXT,
        job_id="12_3",
        allocated=Allocation(cores=40, memory_bytes=2**39, gpus=2, nodes=3, partition=ODD_TEXT, walltime_s=60.0),
        started_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        ended_at=datetime(2024, 3, 1, tzinfo=UTC),
        source=ODD_TEXT,
    )


def build_app(name: str = "demo") -> App:
    return App(
        name=name,
        command=("python", "train.py", "{epochs}"),
        parameters=(
            Parameter(
                name="epochs",
                type=ParameterType.INTEGER,
                scaled_down=Domain(values=(1, 2)),
                full_scale=Domain(values=(10, 10**30)),
                target=Domain(low=1.0, high=1e6),
            ),
            Parameter(name="kind", type=ParameterType.TEXT, full_scale=Domain(values=(ODD_TEXT, "b"))),
        ),
        scaled_down_resources=ResourceSweep(cores=(1, 2), memory_bytes=(None, 2**30)),
        environment={"A": ODD_TEXT},
        setup=(("make", "data"),),
        repetitions=3,
        time_limit_s=60.0,
        phases=(Phase(name="epoch", pattern=r"epoch took (\d+)s"),),
        estimate="epochs * epoch",
    )


def build_model(app: str = "demo", *, blob: bytes = bytes(range(256))) -> ModelRecord:
    scores = Scores(mae=1.0, mape=2.0, median_ape=3.0, upp=4.0, ov_mape=5.0, wtm=6.0, retry_cost=7.0)
    standing = LeaderboardRow(candidate="linear", family="linear", mix="SD", adjustment=None, scores=scores, fit_s=0.5)
    judgement = Judgement(
        quantity="elapsed_s", policy="mae", winner="linear", why="least error", leaderboard=(standing,),
        expected=scores, pairs=((1.0, 1.5),), rows=5, full_scale_rows=2, censored_rows=0,
    )  # fmt: skip
    card = ModelCard(
        app=app,
        policy="mae",
        judgements={"elapsed_s": judgement},
        uses_custom=False,
        warnings=(build_warning("column-not-used", ODD_TEXT, name=ODD_TEXT),),
    )
    created_at = datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    return ModelRecord(
        app=app, card=card, blob=blob, run_ids=("a-0", "b-1"), created_at=created_at, extra={"version": "1"}
    )


class StoreContract:
    """The promises of :class:`foretell.stores.RunStore`, within one process."""

    def test_app_comes_back_equal(self, store: RunStore) -> None:
        store.save_app(build_app())
        assert store.get_app("demo") == build_app()

    def test_app_is_replaced(self, store: RunStore) -> None:
        store.save_app(build_app())
        store.save_app(replace(build_app(), repetitions=9))
        assert store.get_app("demo").repetitions == 9
        assert store.app_names() == ["demo"]

    def test_app_names_are_sorted(self, store: RunStore) -> None:
        for name in ("b", "B", "é", "a", ODD_TEXT):
            store.save_app(build_app(name))
        assert store.app_names() == sorted(["b", "B", "é", "a", ODD_TEXT])

    def test_unknown_app_lists_the_known(self, store: RunStore) -> None:
        store.save_app(build_app())
        with pytest.raises(NotFoundError, match=r"no app named 'dmo'\. Known: demo\."):
            store.get_app("dmo")

    @pytest.mark.parametrize("name", ["a\0b", "a\udcffb"])
    def test_name_that_cannot_be_stored_is_refused(self, store: RunStore, name: str) -> None:
        with pytest.raises(StoreError, match="cannot be stored"):
            store.save_app(build_app(name))
        with pytest.raises(StoreError, match="cannot be stored"):
            store.claim(build_spec(app=name), build_owner())
        with pytest.raises(StoreError, match="cannot be stored"):
            store.add_runs([build_run(app=name)])

    def test_run_comes_back_equal(self, store: RunStore) -> None:
        run = build_full_run()
        assert store.add_runs([run]) == 1
        assert store.runs(run.spec.app) == [run]
        assert store.get_run(run.id) == run

    def test_bare_run_comes_back_equal(self, store: RunStore) -> None:
        run = Run(spec=RunSpec(app="demo", parameters={}), state=State.CANCELLED)
        store.add_runs([run])
        assert store.runs("demo") == [run]

    def test_finished_run_comes_back_equal(self, store: RunStore) -> None:
        run = build_full_run()
        assert store.claim(run.spec, build_owner())
        assert store.finish(run, build_owner())
        assert store.runs(run.spec.app) == [run]

    def test_times_come_back_in_utc(self, store: RunStore) -> None:
        run = build_full_run()
        store.add_runs([run])
        started_at = store.get_run(run.id).started_at
        assert started_at is not None
        assert started_at.utcoffset() == timedelta(0)

    def test_what_no_database_can_hold_is_spelled_out_in_logs(self, store: RunStore) -> None:
        store.add_runs([replace(build_run(), log_tail="a\0b", reason="c\udcffd")])
        (run,) = store.runs("demo")
        assert (run.log_tail, run.reason) == (r"a\x00b", r"c\udcffd")

    def test_figures_that_are_not_finite_were_not_measured(self, store: RunStore) -> None:
        usage = Usage(elapsed_s=1.0, cpu_s=float("nan"), gpu_utilisation=float("inf"))
        store.add_runs([replace(build_run(), usage=usage)])
        assert store.runs("demo")[0].usage == Usage(elapsed_s=1.0)

    @pytest.mark.parametrize(
        "usage",
        [
            Usage(elapsed_s=float("nan")),
            Usage(elapsed_s=float("inf")),
            Usage(elapsed_s=10**400),
            Usage(elapsed_s=1.0, peak_memory_bytes=2**63),
        ],
    )
    def test_impossible_usage_is_refused_by_name(self, store: RunStore, usage: Usage) -> None:
        run = replace(build_run(), usage=usage)
        with pytest.raises(StoreError, match=rf"run {run.id}: \w+ is .*; expected"):
            store.add_runs([run])
        assert store.runs("demo") == []

    def test_parameter_of_a_foreign_type_is_refused_by_name(self, store: RunStore) -> None:
        spec = RunSpec(app="demo", parameters={"n": object()})  # type: ignore[dict-item]  # what a caller may do
        with pytest.raises(StoreError, match=f"run {spec.id} cannot be stored"):
            store.claim(spec, build_owner())

    def test_runs_are_listed_in_order(self, store: RunStore) -> None:
        runs = [build_run(number) for number in (3, 1, 2, 5, 4)]
        store.add_runs(runs)
        assert store.runs("demo") == runs
        assert store.runs("demo", newest_first=True) == runs[::-1]
        assert store.runs("demo", newest_first=True, limit=2) == runs[:-3:-1]
        assert store.runs("demo", limit=2, offset=1) == runs[1:3]
        assert store.runs("demo", offset=4) == runs[4:]

    def test_runs_are_listed_by_state_and_app(self, store: RunStore) -> None:
        done, failed = build_run(1), build_run(2, state=State.FAILED)
        store.add_runs([done, failed, build_run(3, app="other")])
        assert store.runs("demo", states=[State.FAILED, State.TIMED_OUT]) == [failed]
        assert store.runs("demo", states=[]) == []
        assert store.runs("nobody") == []
        assert store.count_runs("demo") == {State.COMPLETED: 1, State.FAILED: 1}
        assert store.known_ids("demo") == {done.id: State.COMPLETED, failed.id: State.FAILED}

    def test_runs_are_found_by_their_parameters(self, store: RunStore) -> None:
        done, failed, again = build_run(1), build_run(2, state=State.FAILED), build_run(1, app="other")
        store.add_runs([done, failed, again])
        asked = [{"number": number} for number in range(2000)]
        assert store.runs_with("demo", asked, states=[State.FAILED, State.COMPLETED]) == [done, failed]
        assert store.runs_with("demo", asked, states=[State.FAILED]) == [failed]
        assert store.runs_with("demo", [{"number": 3}, {"word": "\0"}], states=[State.FAILED]) == []
        assert store.runs_with("demo", [], states=[State.FAILED]) == []

    def test_claimed_run_is_listed_as_running(self, store: RunStore) -> None:
        store.claim(build_spec(), build_owner())
        assert store.runs("demo") == [Run(spec=build_spec(), state=State.RUNNING)]
        assert store.count_runs("demo") == {State.RUNNING: 1}

    def test_adding_again_changes_nothing(self, store: RunStore) -> None:
        runs = [build_run(number) for number in range(20)]
        assert store.add_runs(runs[:12]) == 12
        assert store.add_runs(replace(run, reason="again") for run in runs) == 8
        assert [run.reason for run in store.runs("demo")] == [""] * 12 + ["again"] * 8
        assert store.add_runs([]) == 0

    def test_adding_many_crosses_batches(self, store: RunStore) -> None:
        runs = [build_run(number) for number in range(5_003)]
        assert store.add_runs(iter(runs)) == len(runs)
        assert store.runs("demo") == runs

    def test_adding_leaves_claims_alone(self, store: RunStore) -> None:
        store.claim(build_spec(), build_owner())
        assert store.add_runs([build_run()]) == 0
        assert store.finish(build_run(), build_owner())

    def test_unfinished_run_is_neither_added_nor_finished(self, store: RunStore) -> None:
        store.claim(build_spec(), build_owner())
        running = build_run(state=State.RUNNING)
        with pytest.raises(StoreError, match=f"run {running.id} is still running"):
            store.add_runs([running])
        with pytest.raises(StoreError, match=f"run {running.id} is still running"):
            store.finish(running, build_owner())

    def test_run_is_found_by_prefix(self, store: RunStore) -> None:
        run = build_run()
        store.add_runs([run, *(replace(run, spec=replace(run.spec, repetition=n)) for n in (1, 10, 11))])
        assert store.get_run(run.id[:16] + "-0") == run
        assert store.get_run(run.id[:16] + "-1").spec.repetition == 1
        with pytest.raises(NotFoundError, match="Several ids begin so") as caught:
            store.get_run(run.id[:5])
        assert run.id in caught.value.known

    def test_unknown_run_is_not_found(self, store: RunStore) -> None:
        store.add_runs([build_run(number) for number in range(20)])
        for prefix in ("", "%", "_", "0%", "~", "zz", "A", "\0", "\udcff", "☃", "0" * 10_000):
            with pytest.raises(NotFoundError, match="no run named"):
                store.get_run(prefix)

    def test_deleted_runs_are_gone(self, store: RunStore) -> None:
        runs = [build_run(number) for number in range(4)]
        store.add_runs(runs)
        assert store.delete_runs([runs[0].id, runs[2].id, "unknown"]) == 2
        assert store.runs("demo") == [runs[1], runs[3]]
        assert store.delete_runs([]) == 0

    def test_deleting_a_claimed_run_ends_the_claim(self, store: RunStore) -> None:
        store.claim(build_spec(), build_owner())
        assert store.delete_runs([build_spec().id]) == 1
        assert not store.finish(build_run(), build_owner())
        assert store.claim(build_spec(), build_owner("them"))

    def test_versions_of_a_program_have_runs_of_their_own(self, store: RunStore) -> None:
        first, second = build_run(), replace(build_run(), spec=replace(build_spec(), version=1))
        assert store.add_runs([first, second]) == 2
        assert [store.runs("demo", version=version) for version in (None, 0, 1, 2)] == [
            [first, second], [first], [second], [],
        ]  # fmt: skip
        assert store.count_runs("demo", version=1) == {State.COMPLETED: 1}
        assert store.count_runs("demo") == {State.COMPLETED: 2}

    def test_claim_is_taken_once(self, store: RunStore) -> None:
        assert store.claim(build_spec(), build_owner())
        assert not store.claim(build_spec(), build_owner("them"))
        assert not store.claim(build_spec(), build_owner())
        assert not store.claim(build_spec(), build_owner("them"), retry=list(State))

    def test_claims_tell_who(self, store: RunStore) -> None:
        before = datetime.now(UTC) - timedelta(seconds=1)
        store.claim(build_spec(1), build_owner())
        store.claim(build_spec(2), build_owner("them"))
        store.add_runs([build_run(3)])
        claims = store.claims("demo")
        assert [(claim.spec, claim.owner) for claim in claims] == [
            (build_spec(1), build_owner()),
            (build_spec(2), build_owner("them")),
        ]
        assert all(claim.heartbeat_at > before for claim in claims)
        assert store.claims("other") == []

    def test_heartbeat_is_for_the_owners_claims_only(self, store: RunStore) -> None:
        for number, token in enumerate(["us", "us", "them"]):
            store.claim(build_spec(number), build_owner(token))
        before = [claim.heartbeat_at for claim in store.claims("demo")]
        store.heartbeat(build_owner())
        after = [claim.heartbeat_at for claim in store.claims("demo")]
        assert [late > early for early, late in zip(before, after, strict=True)] == [True, True, False]

    @pytest.mark.parametrize("state", sorted(RETRIABLE))
    def test_final_run_is_taken_over_only_on_request(self, store: RunStore, state: State) -> None:
        failed = replace(build_full_run(), state=state)
        store.add_runs([failed])
        assert not store.claim(failed.spec, build_owner())
        assert not store.claim(failed.spec, build_owner(), retry=RETRIABLE - {state})
        assert store.claim(failed.spec, build_owner(), retry=[state])
        assert store.get_run(failed.id) == Run(spec=failed.spec, state=State.RUNNING)
        assert not store.claim(failed.spec, build_owner("them"), retry=RETRIABLE)

    def test_released_run_can_be_taken_on_again(self, store: RunStore) -> None:
        store.claim(build_spec(), build_owner())
        assert not store.release(build_spec().id, build_owner("them"))
        assert store.release(build_spec().id, build_owner())
        assert not store.release(build_spec().id, build_owner())
        assert store.claim(build_spec(), build_owner("them"))

    def test_finished_run_cannot_be_released(self, store: RunStore) -> None:
        store.claim(build_spec(), build_owner())
        store.finish(build_run(), build_owner())
        assert not store.release(build_spec().id, build_owner())
        assert store.claims("demo") == []
        assert store.runs("demo") == [build_run()]

    def test_only_the_owner_finishes(self, store: RunStore) -> None:
        late, now = build_owner("late"), build_owner("now")
        store.claim(build_spec(), late)
        store.release(build_spec().id, late)
        store.claim(build_spec(), now)
        assert not store.finish(build_run(), late)
        assert store.finish(build_run(), now)
        assert not store.finish(build_run(state=State.FAILED), now)
        assert store.runs("demo") == [build_run()]

    def test_a_batch_takes_its_runs_on_at_once(self, store: RunStore) -> None:
        store.add_runs([build_run(0), build_run(1, state=State.FAILED), build_run(2, state=State.INTERRUPTED)])
        store.claim(build_spec(3), build_owner("them"))
        specs = [build_spec(number) for number in (5, 4, 3, 2, 1, 0)]
        batch = store.open_batch(build_batch(), specs, retry=[State.INTERRUPTED])
        assert batch.run_ids == tuple(build_spec(number).id for number in (5, 4, 2))
        assert store.batches("demo") == [batch]
        assert [claim.owner for claim in store.claims("demo") if claim.owner.is_batch] == [batch.owner] * 3
        store.keep_job_id(batch.id, "4711")
        assert store.batches("demo") == [replace(batch, job_id="4711")]
        assert store.batches("other") == []

    def test_a_batch_ends_with_its_last_run(self, store: RunStore) -> None:
        batch = store.open_batch(build_batch(), [build_spec(number) for number in range(3)])
        assert store.finish_all([build_run(0), build_run(1), build_run(7)], batch.owner) == set(batch.run_ids[:2])
        assert store.finish_all([build_run(1, state=State.FAILED)], batch.owner) == set()
        assert store.batches("demo") == [batch]
        assert store.release_all(batch.owner) == 1
        assert store.batches("demo") == []
        assert store.runs("demo") == [build_run(0), build_run(1)]

    def test_a_batch_without_runs_is_not_kept(self, store: RunStore) -> None:
        store.add_runs([build_run(0)])
        assert store.open_batch(build_batch(), [build_spec(0)]).run_ids == ()
        assert store.open_batch(build_batch(), []).run_ids == ()
        assert store.batches("demo") == []

    def test_one_of_many_threads_gets_the_claim(self, store: RunStore) -> None:
        specs = [build_spec(number) for number in range(10)]
        together = threading.Barrier(_THREADS)

        def claim_all(number: int) -> list[bool]:
            together.wait()
            return [store.claim(spec, build_owner(f"thread {number}")) for spec in specs]

        with ThreadPoolExecutor(_THREADS) as pool:
            wins = list(pool.map(claim_all, range(_THREADS)))
        assert [sum(column) for column in zip(*wins, strict=True)] == [1] * len(specs)

    def test_model_comes_back_equal_without_its_run_ids(self, store: RunStore) -> None:
        store.save_model(build_model())
        assert store.find_model("demo") == replace(build_model(), run_ids=())
        assert store.model_run_ids("demo") == build_model().run_ids

    def test_model_is_replaced(self, store: RunStore) -> None:
        store.save_model(build_model("other"))
        store.save_model(build_model())
        store.save_model(build_model(blob=b""))
        found = store.find_model("demo")
        assert found is not None
        assert found.blob == b""

    def test_no_model(self, store: RunStore) -> None:
        assert store.find_model("demo") is None
        assert store.model_run_ids("demo") == ()


class SharedStoreContract(StoreContract):
    """The same for a store that several processes open at once, at the fixture ``address``."""

    @pytest.fixture
    def store(self, address: str) -> Any:
        with open_store(address) as store:
            yield store

    def test_what_one_writes_another_reads(self, store: RunStore, address: str) -> None:
        store.save_app(build_app())
        store.add_runs([build_full_run()])
        with open_store(address) as again:
            assert again.get_app("demo") == build_app()
            assert again.get_run(build_full_run().id) == build_full_run()

    def test_one_of_many_processes_gets_the_claim(self, address: str) -> None:
        """Also the first to open the store: each of them would create its tables."""
        wins = _run_in_processes(_claim_all, address)
        assert [sum(column) for column in zip(*wins, strict=True)] == [1] * _CLAIMS

    def test_threads_of_two_stores_write_at_once(self, store: RunStore, address: str) -> None:
        with open_store(address) as again, ThreadPoolExecutor(4) as pool:
            stores = [store, again, store, again]
            runs = [[build_run(10 * part + number) for number in range(10)] for part in range(4)]
            added = pool.map(lambda part: sum(stores[part].add_runs([run]) for run in runs[part]), range(4))
            assert list(added) == [10] * 4
        assert store.count_runs("demo") == {State.COMPLETED: 40}


_CLAIMS = 10


def _claim_all(address: str, together: Any, answers: Any, number: int) -> None:
    together.wait()
    with open_store(address) as store:
        answers.put([store.claim(build_spec(claim), build_owner(f"process {number}")) for claim in range(_CLAIMS)])


def _run_in_processes(work: Callable[..., None], address: str) -> list[list[bool]]:
    context = multiprocessing.get_context("spawn")
    together, answers = context.Barrier(_PROCESSES), context.SimpleQueue()
    workers = [context.Process(target=work, args=(address, together, answers, n)) for n in range(_PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * _PROCESSES
    return [answers.get() for _ in workers]
