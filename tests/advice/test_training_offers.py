import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.advice.training_examples import (
    CHEAP,
    CPU,
    GIB,
    LawOfLayouts,
    build_node,
    build_site,
    build_training,
    search_site,
)

from foretell.advice.advise_results import SiteAdvice, TrainingOffer
from foretell.advice.nearest_changes import build_error, list_obstacles, render_epochs
from foretell.advice.policy import Policy, choose_policy
from foretell.advice.render_advise import describe_runner_up
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.advice.training_offers import build_site_advice, compare_sites, find_walltime
from foretell.core.prices import charge
from foretell.core.site import Site

SITE = build_site()


def advise(
    site: Site = SITE,
    *,
    job: TrainingJob | None = None,
    policy: Policy | None = None,
    layouts: LawOfLayouts | None = None,
    risk: float = 0.05,
) -> SiteAdvice:
    job = job or build_training()
    return build_site_advice(site, search_site(site, job, layouts=layouts), job, policy or choose_policy(), risk=risk)


def limit(*, seconds: float | None = None, cost: float | None = None, prefer: str = "auto") -> Policy:
    return choose_policy(max_time_s=seconds, max_cost=None if cost is None else Decimal(str(cost)), prefer=prefer)


def pick(advice: SiteAdvice) -> TrainingOffer:
    assert advice.picked is not None, advice.problem
    return advice.picked


class TestOffers:
    def test_every_gpu_count_that_divides_the_batch_is_offered(self) -> None:
        offers = advise().offers
        sizes = {(each.allocation.node_type, each.allocation.nodes, each.allocation.gpus) for each in offers}
        fast = {("fast", 1, gpus) for gpus in (1, 2, 4)} | {("fast", nodes, 4) for nodes in (2, 4)}
        assert sizes == fast | {("cheap", 1, 1), ("cheap", 1, 2), ("cheap", 2, 2), ("cheap", 4, 2)}

    def test_time_cost_and_request_by_hand(self) -> None:
        job = build_training()
        found = {(each.allocation.node_type, each.candidate.gpus): each for each in advise(job=job).offers}
        four = found["fast", 4]
        # 64 examples on 4 GPUs at 4 a millisecond: 4 ms, and 0.3 ms for the others; 10,000 steps; the start 100 s
        assert four.time_s == pytest.approx(100 + 43)
        assert four.longest_s == pytest.approx(200 + 43 * 1.3)
        assert four.allocation.cores == 4 * (3 + 1)
        assert four.allocation.walltime_s == 300.0  # of 255.9 s at a risk of 5 %, in whole minutes
        assert four.offer.cost == charge(build_node("fast"), four.allocation, four.time_s)
        assert float(four.offer.cost) == pytest.approx(4 * 143 / 3600)
        assert float(four.offer.cost_at_request) == pytest.approx(4 * 300 / 3600)
        assert four.offer.risk < 0.05
        assert four.allocation.memory_bytes == 128 * GIB  # half of the cores: more than 4 x 4 GB that are needed

    def test_the_fastest_layout_that_fits_is_taken_and_the_others_are_kept(self) -> None:
        found = {each.candidate.gpus: each.candidate for each in advise(build_site(build_node("fast"))).offers}
        assert (str(found[4].choice.step.layout), str(found[4].others[0].step.layout)) == ("ddp", "fsdp")
        tight = advise(build_site(CHEAP), layouts=LawOfLayouts(needed=20.0 * GIB))
        assert {str(each.candidate.choice.step.layout) for each in tight.offers} == {"fsdp"}

    def test_only_a_named_layout_is_tried(self) -> None:
        found = search_site(SITE, layout="fsdp")
        layouts = {str(each.choice.step.layout) for each in found if isinstance(each, Candidate)}
        assert layouts == {"fsdp", "one copy"}

    def test_a_script_that_shares_nothing_gets_one_gpu(self) -> None:
        found = search_site(SITE, build_training(grows=True), layout="one")
        assert {each.gpus for each in found if isinstance(each, Candidate)} == {1}

    def test_a_batch_that_grows_makes_fewer_steps(self) -> None:
        found = {each.candidate.gpus: each.candidate for each in advise(job=build_training(grows=True)).offers}
        assert (found[8].batch, found[8].time.steps) == (512, 1_250)

    def test_whole_nodes_are_paid_for_and_asked_for(self) -> None:
        site = build_site(build_node("whole", whole_node=True))
        offer = next(each for each in advise(site).offers if each.candidate.gpus == 1)
        assert (offer.allocation.cores, offer.allocation.memory_bytes) == (32, 256 * GIB)
        assert float(offer.offer.cost) == pytest.approx(4 * offer.time_s / 3600)

    def test_a_measured_run_corrects_and_narrows_all_of_them(self) -> None:
        from foretell.advice.evidence_steps import StepEvidence
        from foretell.advice.measured_candidates import RunComparison, correct_by_runs, find_place

        job, found = build_training(), search_site(SITE)
        assert correct_by_runs(job, [found], (), RunComparison()).found == (tuple(found),)
        first = next(each for each in found if isinstance(each, Candidate))
        place, slow = find_place(first), 1.3 * first.step.value
        run = StepEvidence(device=place.device, gpus=place.gpus, layout=place.layout, batch=place.batch, step_s=slow)
        corrected = correct_by_runs(job, [found], [run], RunComparison())
        assert corrected.combined is not None
        for before, after in zip(found, corrected.found[0], strict=True):
            if isinstance(before, Candidate):
                assert isinstance(after, Candidate)
                assert after.step.value > before.step.value
                assert after.step.high / after.step.low < before.step.high / before.step.low
                assert after.time.total.value > before.time.total.value


class TestPick:
    @pytest.mark.parametrize("prefer", ["cheapest", "fastest"])
    @pytest.mark.parametrize("seconds", [None, 300.0, 600.0, 3600.0])
    @pytest.mark.parametrize("cost", [None, 0.2, 0.5])
    def test_it_is_the_best_of_everything(self, prefer: str, seconds: float | None, cost: float | None) -> None:
        advice = advise(policy=limit(seconds=seconds, cost=cost, prefer=prefer))
        within = [
            each
            for each in advise().offers
            if each.longest_s <= (seconds or math.inf) and each.offer.cost_at_request <= Decimal(str(cost or 1e9))
        ]
        if not within:
            assert advice.picked is None
            assert advice.problem.startswith("nothing takes" if seconds else "nothing costs")
            return
        quickest_s = min(each.time_s for each in within)
        enough = [each for each in within if prefer == "cheapest" or each.time_s <= 1.05 * quickest_s]
        best = min(enough, key=lambda each: (each.offer.cost, each.time_s))
        assert pick(advice).allocation == best.allocation

    def test_a_little_less_time_is_worth_no_higher_cost(self) -> None:
        short = build_training(samples=64, epochs=1)  # its start is nearly all of its time
        advice = advise(job=short, policy=limit(cost=40, prefer="fastest"))
        assert pick(advice).candidate.gpus == 1
        assert pick(advice).offer.cost == min(each.offer.cost for each in advice.offers)
        assert advice.why.startswith(
            "the cheapest that takes at most 5 % longer than the quickest of 9 offers that cost"
        )
        long = build_training(epochs=1000)
        assert pick(advise(job=long, policy=limit(cost=4000, prefer="fastest"))).candidate.gpus > 1

    @given(first=st.floats(200, 4000), more=st.floats(1, 10))
    def test_a_later_deadline_never_costs_more(self, first: float, more: float) -> None:
        early, late = (advise(policy=limit(seconds=each)) for each in (first, first * more))
        assert early.picked is None or pick(late).offer.cost <= early.picked.offer.cost

    @given(first=st.floats(0.02, 1), more=st.floats(1, 10))
    def test_a_larger_budget_runs_no_longer_than_what_counts_as_quick(self, first: float, more: float) -> None:
        little, much = (advise(policy=limit(cost=each)) for each in (first, first * more))
        assert little.picked is None or pick(much).time_s <= 1.05 * little.picked.time_s

    @given(epochs=st.integers(1, 300), more=st.integers(1, 300))
    def test_more_epochs_are_never_cheaper(self, epochs: int, more: int) -> None:
        policy = limit(seconds=86400.0)
        few, many = (advise(job=build_training(epochs=each), policy=policy) for each in (epochs, epochs + more))
        assert many.picked is None or pick(few).offer.cost <= many.picked.offer.cost

    @given(risk=st.floats(0.01, 0.4))
    def test_a_request_holds_at_the_stated_risk(self, risk: float) -> None:
        for each in advise(risk=risk).offers:
            assert each.offer.risk <= risk + 1e-9
            least = find_walltime(each.candidate.time.total, risk)
            assert least <= (each.allocation.walltime_s or 0) < least + 60.001

    def test_the_runner_up_says_what_it_would_change(self) -> None:
        advice = advise(policy=limit(seconds=3600.0))
        runner_up = advice.runner_up
        assert runner_up is not None
        assert runner_up.time_change_s == pytest.approx(runner_up.offer.time_s - pick(advice).time_s)
        assert runner_up.time_change_s < 0 < runner_up.cost_change

    def test_without_a_front_it_is_the_best_on_other_nodes(self) -> None:
        slow = replace(CHEAP, price_per_gpu_h=Decimal(9))
        job = build_training(batch=1, samples=1000)  # which only one GPU can have
        advice = advise(build_site(build_node("fast"), slow), job=job)
        assert advice.runner_up is not None
        assert advice.runner_up.offer.allocation.node_type == "cheap"

    def test_times_that_hardly_differ_are_not_told_apart(self) -> None:
        short = advise(job=build_training(samples=64, epochs=1))
        assert short.runner_up is not None
        assert ": about as quick, " in describe_runner_up(short.runner_up)
        long = advise(policy=limit(seconds=3600.0))
        assert long.runner_up is not None
        assert " quicker, " in describe_runner_up(long.runner_up)

    def test_the_only_offer_has_none(self) -> None:
        site = build_site(build_node("fast", gpus=1, max_nodes=1))
        assert advise(site).runner_up is None


class TestWhatDoesNotWork:
    @pytest.mark.parametrize(("epochs", "said"), [(20_000.0, "20,000"), (90.0, "90"), (0.5, "0.5"), (12.345, "12.35")])
    def test_epochs_are_written_without_exponents(self, epochs: float, said: str) -> None:
        assert render_epochs(epochs) == said

    def test_too_little_memory_names_what_is_lacking_and_the_count_that_works(self) -> None:
        advice = advise(build_site(CHEAP), layouts=LawOfLayouts(needed=20.0 * GIB))
        (obstacle,) = [each for each in advice.obstacles if each.divides]
        assert obstacle.reason.startswith("needs 20 GB (up to 22 GB) of the 15.8 GB of each V100-16")
        assert obstacle.change == "2 GPUs of these work, by fsdp"

    def test_where_no_count_works_it_says_how_much_less_would(self) -> None:
        advice = advise(build_site(CHEAP), layouts=LawOfLayouts(needed=500.0 * GIB))
        assert advice.problem == "nothing works there"
        text = str(build_error([advice]))
        assert "cheap with 1 to 8 GPUs: needs 62.5 GB" in text
        assert "less on each GPU: try --checkpointing, --precision fp16 or a smaller --batch" in text

    def test_gpus_that_cannot_hold_what_is_trained_are_not_tried(self) -> None:
        from tests.advice.training_examples import WORKLOAD

        from foretell.advice.training_candidates import CandidateSearch
        from foretell.advice.training_plan import RecordedTraining

        search = CandidateSearch(build_training(), RecordedTraining(workload=WORKLOAD), LawOfLayouts())
        search._least_bytes = 60 * GIB
        found = list(search.search(build_site(CHEAP), lambda _: None))
        assert [each.allocation.gpus * each.allocation.nodes for each in found if isinstance(each, Candidate)] == [4, 8]
        first = next(each for each in found if isinstance(each, Obstacle))
        assert first.reason.startswith("needs more than 60 GB of the 15.8 GB of each V100-16 by any layout")
        assert first.remedies == ("--lora r=16", "--precision pure-fp16")

    def test_counts_that_do_not_divide_the_batch_are_one_line(self) -> None:
        lines = list_obstacles(advise().obstacles)
        assert lines == ["3, 6, 12 GPUs: so many cannot share the 64 examples of a step"]

    def test_a_layout_that_divides_nothing(self) -> None:
        found = [each for each in search_site(SITE, layout="tp=7") if isinstance(each, Obstacle)]
        assert list_obstacles(found) == ["1, 2, 3, 4, 6, 8, 12, 16 GPUs: so many cannot be shared by tp=7"]
        found = [each for each in search_site(SITE, layout="dp=8") if isinstance(each, Obstacle)]
        assert list_obstacles(found) == ["1, 2, 3, 4, 6, 12, 16 GPUs: so many cannot be shared by dp=8"]
        alone = build_site(build_node("one", gpus=1, max_nodes=1))
        found = [each for each in search_site(alone, layout="dp=8") if isinstance(each, Obstacle)]
        assert list_obstacles(found) == ["1 GPU: so many cannot be shared by dp=8"]

    def test_nodes_that_cannot_be_predicted_say_why(self) -> None:
        unknown = build_node("odd", gpu_model="Own GPU 9", gpu_memory_bytes=None)
        found = search_site(build_site(unknown, CPU))
        reasons = {each.allocation.node_type: each.reason for each in found if isinstance(each, Obstacle)}
        assert "the figures of Own GPU 9 are unknown" in reasons["odd"]
        assert "there is no model of this CPU" in reasons["cpu"]

    def test_limits_that_are_too_low_say_what_they_would_buy(self) -> None:
        job = build_training(epochs=100)
        advice = advise(job=job, policy=limit(cost=0.05))
        assert advice.purchase is not None
        assert 0 < advice.purchase.epochs < 100
        assert "--max-cost" in advice.problem
        assert f"the limits buy {advice.purchase.epochs:.0f} of 100 epochs on" in advice.problem

    def test_a_walltime_that_is_too_long_is_several_jobs(self) -> None:
        site = build_site(build_node("fast", gpus=1, max_nodes=1, max_walltime_s=400.0), CHEAP)
        advice = advise(site, job=build_training(epochs=100))
        line = next(each for each in list_obstacles(advice.obstacles) if each.startswith("fast"))
        assert line.startswith("fast with 1 GPU: about 28 min 20 s; the limit is 6 min 40 s. 6 jobs in a row that")

    def test_counts_of_a_node_type_that_all_take_too_long_are_one_line(self) -> None:
        site = build_site(build_node("fast", max_walltime_s=400.0), CHEAP)
        lines = list_obstacles(advise(site, job=build_training(epochs=10_000)).obstacles)
        named = [line.partition(": about")[0] for line in lines if line.startswith("fast")]
        assert named == ["fast with 1 to 16 GPUs"]

    @pytest.mark.parametrize(
        ("seconds", "cost", "said"),
        [
            (250.0, 0.01, "the quickest takes up to"),
            (100.0, None, "the start alone takes up to 3 min 20 s"),
            (250.0, None, "--max-time"),
        ],
    )
    def test_each_limit_has_its_remedy(self, seconds: float, cost: float | None, said: str) -> None:
        job = build_training(epochs=100)
        assert said in advise(job=job, policy=limit(seconds=seconds, cost=cost)).problem

    def test_the_remedy_works(self) -> None:
        advice = advise(policy=limit(cost=0.02))
        cost = float(advice.problem.split("--max-cost ")[1].split()[0])
        assert advise(policy=limit(cost=cost)).picked is not None


class TestSites:
    def test_the_best_site_is_first_among_those_of_one_currency(self) -> None:
        dear = replace(build_site(build_node("fast", price_per_gpu_h=Decimal(3))), name="dear")
        free = replace(build_site(build_node("units", price_per_gpu_h=Decimal("0.001")), currency="SU"), name="units")
        none = replace(build_site(CPU), name="none")
        policy = limit(seconds=3600.0)
        found = [advise(site, policy=policy) for site in (dear, none, free, SITE)]
        assert [each.site.name for each in compare_sites(found, policy)] == ["here", "dear", "units", "none"]

    def test_a_site_that_is_hardly_quicker_is_worth_no_higher_cost(self) -> None:
        policy = limit(cost=40, prefer="fastest")
        dear = replace(build_site(build_node("fast", price_per_gpu_h=Decimal(3))), name="dear")
        cheap = replace(build_site(build_node("slow", gpu_model="A100")), name="cheap")
        short = build_training(samples=64, epochs=1)
        found = [advise(site, job=short, policy=policy) for site in (dear, cheap)]
        assert [each.site.name for each in compare_sites(found, policy)] == ["cheap", "dear"]


def test_the_plot_is_made(tmp_path: Path) -> None:
    from foretell.advice.plots import draw_offers
    from foretell.core.render.figures import save_figure

    figure = draw_offers(advise().recommend("net.py:build"))
    (label,) = figure.axes[0].texts
    assert label.get_path_effects()  # it is to be read above other offers
    save_figure(figure, tmp_path / "offers.png")
    assert (tmp_path / "offers.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("currencies", "named"),
    [(("USD", "SU"), "in SU and USD, which"), (("USD", "SU", "EUR"), "in EUR, SU and USD, which")],
)
def test_costs_that_cannot_be_compared_are_a_warning(currencies: tuple[str, ...], named: str) -> None:
    from foretell.advice.training_answer import compare_currencies

    found = [advise(build_site(currency=each)) for each in currencies]
    (warning,) = compare_currencies(found)
    assert f"Costs are {named} cannot be compared" in warning.text
    assert warning.text.endswith("sites in USD come first.")
    assert not compare_currencies(found[:1])
