import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.advice.render import render_recommendation, render_site, render_sites
from foretell.apps.render import render_run, render_runs
from foretell.campaigns.campaign_plan import CampaignResult, Plan, Progress
from foretell.campaigns.render import render_campaign_result, render_outcome, render_plan, render_progress
from foretell.core.errors import Mistake, SpecError
from foretell.core.model_card import Judgement, ModelCard
from foretell.core.prediction import Estimate, Prediction, Recommendation, Request
from foretell.core.render.phrases import describe_request
from foretell.core.render.tables import render_mistakes
from foretell.core.run import Allocation, Run, State, Usage
from foretell.core.site import Site
from foretell.core.warning import build_warning
from foretell.runtimes.render import render_leaderboard, render_model_card, render_predictions

Golden = Callable[[str, str], None]
ToText = Callable[..., str]

odd_texts = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["[red]x[/red]", "[/]", "\x1b[31mred\x1b[0m", "a\nb"]
)
odd_numbers = st.floats() | st.sampled_from([0.0, -1.0, 1e300, 1e-300])


def test_plan(plan: Plan, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_plan.txt", to_text(render_plan(plan)))


def test_plan_before_any_run(plan: Plan, to_text: ToText) -> None:
    unknown = replace(plan, expected_s=None, limit_s=None, core_h=None, busy_cores=0.0)
    text = to_text(render_plan(unknown))
    assert "unknown before the first runs" in text
    assert "core-hours" not in text
    assert "Note" not in text


def test_plan_with_nothing_left(plan: Plan, to_text: ToText) -> None:
    text = to_text(render_plan(replace(plan, specs=(), running_elsewhere=0, left_out=0)))
    assert text.startswith("fcnet: nothing is left to run\n")
    assert "Stored already" in text
    assert not {"Sweep", "Will", "Note"} & set(text.split())
    assert "nothing else is left" in to_text(render_plan(replace(plan, specs=(), running_elsewhere=1, left_out=0)))
    assert "nothing that is left fits the budget" in to_text(render_plan(replace(plan, specs=())))


@pytest.mark.parametrize("width", [80, 100])
def test_progress_keeps_to_its_lines(progress: Progress, to_text: ToText, check_golden: Golden, width: int) -> None:
    text = to_text(render_progress(progress), width)
    check_golden(f"report_progress_{width}.txt", text)
    assert len(text.splitlines()) == 3


def test_outcomes_take_one_line_each(runs: list[Run], to_text: ToText, check_golden: Golden) -> None:
    lines = [to_text(render_outcome(run), 80) for run in (runs[0], runs[-2], runs[-1])]
    assert [line.count("\n") for line in lines] == [1, 1, 1]
    check_golden("report_outcomes.txt", "".join(lines))


def test_campaign_result(result: CampaignResult, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_campaign.txt", to_text(render_campaign_result(result)))


def test_failures_show_the_last_line_of_stderr(result: CampaignResult, runs: list[Run], to_text: ToText) -> None:
    log = "--- stdout.log\nepoch 1\n--- stderr.log\nTraceback\nRuntimeError: no \x1b[31mdata\x1b[0m here\n\n"
    failed = replace(runs[-2], log_tail=log)
    for text in (
        to_text(render_campaign_result(replace(result, failures=(failed,))), 200),
        to_text(render_runs([failed], total=1), 200),
    ):
        assert "it ended with exit code 1: RuntimeError: no data here" in text
    assert "Why" not in to_text(render_runs([runs[0], failed], total=2), 200)


def test_without_stderr_the_last_line_of_the_output_is_shown(runs: list[Run], to_text: ToText) -> None:
    failed = replace(runs[-2], log_tail="--- stdout.log\nnot converged")
    assert "exit code 1: not converged" in to_text(render_runs([failed], total=1), 200)


@pytest.mark.parametrize("width", [60, 80])
def test_run_ids_are_never_broken(result: CampaignResult, runs: list[Run], to_text: ToText, width: int) -> None:
    long = "--- stderr.log\n" + "a long complaint " * 20
    failures = tuple(replace(run, log_tail=long) for run in runs[-2:])
    for text in (
        to_text(render_runs(runs, total=len(runs)), width),
        to_text(render_runs(failures, total=2), width),
        to_text(render_campaign_result(replace(result, failures=failures)), width),
    ):
        assert all(run.id in text for run in failures)


def test_local_runs_that_were_stopped_are_not_said_to_be_with_slurm(result: CampaignResult, to_text: ToText) -> None:
    stopped = replace(
        result, submitted=0, stopped="2 running runs were stopped; run the same command again to continue"
    )
    assert "Slurm" not in to_text(render_campaign_result(stopped))


def test_what_others_and_the_budget_leave_is_reported(result: CampaignResult, to_text: ToText) -> None:
    text = to_text(
        render_campaign_result(
            replace(result, running_elsewhere=2, elsewhere_completed=3, elsewhere_failed=1, left=7, left_s=90.0)
        )
    )
    assert "2 runs are being made by another process; 'foretell generate --wait' waits for them." in text
    assert "Made by other processes meanwhile: 4 runs, 1 failed" in text
    assert "Left out by the budget: 7 runs, about 1 min 30 s; 'foretell generate' makes them." in text
    assert "Left out by the budget: 1 run; 'foretell generate' makes it." in to_text(
        render_campaign_result(replace(result, left=1))
    )


def test_completed_runs_with_a_remark_are_counted(result: CampaignResult, to_text: ToText) -> None:
    remarks = {f"phase {name!r}: not found": runs for name, runs in (("a", 1), ("b", 7), ("c", 2), ("d", 1), ("e", 1))}
    lines = to_text(render_campaign_result(replace(result, remarks=remarks)), 200).splitlines()
    assert [line for line in lines if "ote" in line] == [
        "Note on 7 completed runs: phase 'b': not found",
        "Note on 2 completed runs: phase 'c': not found",
        "Note on 1 completed run: phase 'a': not found",
        "... and notes on 2 more completed runs: 'foretell runs show RUN' has them.",
    ]


def test_what_should_be_known_of_a_completed_run_is_shown(runs: list[Run], to_text: ToText) -> None:
    text = to_text(render_run(replace(runs[0], reason="phase 'count': the output was cut")), 200)
    assert "Note        phase 'count': the output was cut" in re.sub(" {3,}", " " * 8, text)
    assert "Note" not in to_text(render_run(runs[-2]))


def test_disturbed_runs_are_reported(result: CampaignResult, to_text: ToText) -> None:
    text = to_text(render_campaign_result(replace(result, disturbed=2, repeated=1)), 200)
    assert "1 run measured again because other processes had used this machine." in text
    assert "2 runs measured while other processes used this machine" in text


def test_a_plan_says_what_cannot_run(plan: Plan, to_text: ToText) -> None:
    text = to_text(render_plan(replace(plan, obstacles={"it requests 49 cores; a node has 48": 3})))
    assert "Cannot run" in text
    assert "3 runs: they request 49 cores; a node has 48" in text
    one = to_text(render_plan(replace(plan, obstacles={"it requests 49 cores; a node has 48": 1})))
    assert "1 run: it requests 49 cores; a node has 48" in one


def test_stopped_campaign_says_how_to_resume(result: CampaignResult, to_text: ToText) -> None:
    stopped = replace(result, stopped="interrupted; run the same command again to resume")
    assert "Stopped: interrupted; run the same command again" in to_text(render_campaign_result(stopped))


def test_runs(runs: list[Run], to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_runs.txt", to_text(render_runs(runs, total=400)))


def test_no_runs(to_text: ToText) -> None:
    assert "foretell generate" in to_text(render_runs([], total=0))


def test_run(runs: list[Run], to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_run.txt", to_text(render_run(runs[0])))


def test_failed_run_shows_its_log_as_it_is(runs: list[Run], to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_run_failed.txt", to_text(render_run(runs[-2])))


def test_model_card(card: ModelCard, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_model.txt", to_text(render_model_card(card)))


def test_short_leaderboard_still_shows_the_winner(judgement: Judgement, to_text: ToText) -> None:
    late = replace(judgement, winner="neural SD")
    text = to_text(render_leaderboard(late, rows=2))
    assert "\n >  neural SD" in text
    assert "tree SD" not in text
    assert "... and 2 others" in text


def test_one_prediction(prediction: Prediction, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_prediction.txt", to_text(render_predictions([prediction])))


def test_many_predictions(prediction: Prediction, to_text: ToText, check_golden: Golden) -> None:
    without_memory = replace(prediction, peak_memory_bytes=None, warnings=())
    check_golden("report_predictions.txt", to_text(render_predictions([prediction, without_memory, prediction])))


def test_no_predictions(to_text: ToText) -> None:
    assert "Parameters" in to_text(render_predictions([]))


def test_taken_estimate_is_marked(prediction: Prediction, to_text: ToText) -> None:
    assert prediction.custom is not None
    custom = replace(prediction, elapsed_s=prediction.custom)
    lines = to_text(render_predictions([custom])).splitlines()
    assert [line.split()[1] for line in lines if "(taken)" in line] == ["Custom"]


@pytest.mark.parametrize("width", [80, 100])
def test_recommendation(recommendation: Recommendation, to_text: ToText, check_golden: Golden, width: int) -> None:
    text = to_text(render_recommendation(recommendation), width)
    check_golden(f"report_recommendation_{width}.txt", text)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100])
def test_times_and_nodes_of_offers_are_never_broken(
    recommendation: Recommendation, to_text: ToText, width: int
) -> None:
    """Nor where names are long, sizes are, and the interval spans units."""
    node, elapsed = "Standard_HB120rs_v3", Estimate(value=2399.0, low=0.4, high=1035 * 86400.0, level=0.9)
    allocation = replace(recommendation.picked.allocation, node_type=node, nodes=2, cores=40, gpus=2)
    prediction = replace(recommendation.picked.prediction, elapsed_s=elapsed, allocation=allocation)
    offers = tuple(replace(offer, prediction=prediction) for offer in recommendation.offers[:3])
    text = to_text(render_recommendation(replace(recommendation, offers=offers, picked=offers[0])), width)
    table = text[text.index("───") :].split("\n\n")[0]
    for whole in (node, "39 min 59 s", "400 ms-1035 d", "1 h 04 min"):
        assert table.count(whole) == 3
    assert max(map(len, text.splitlines())) <= width


def test_times_of_predictions_are_not_broken_on_a_narrow_terminal(prediction: Prediction, to_text: ToText) -> None:
    text = to_text(render_predictions([prediction, prediction]), 80)
    for whole in ("12 min 30 s", "11-15 min", "16 min 00 s", "330-370 MB"):
        assert text.count(whole) == 2


def test_sites(site: Site, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_sites.txt", to_text(render_sites([site])) + to_text(render_site(site)))


def test_mistakes(to_text: ToText, check_golden: Golden) -> None:
    mistakes = [
        Mistake(place="parameters.epochs.sd", found="'ten'", expected="integers such as [1, 2]", line=7),
        Mistake(place="name", found="nothing", expected="a word"),
    ]
    check_golden("report_mistakes.txt", to_text(render_mistakes(SpecError("foretell.yaml", mistakes))))


@settings(deadline=None, max_examples=40)
@given(odd=odd_texts)
def test_odd_texts_stay_text(
    odd: str, plan: Plan, result: CampaignResult, prediction: Prediction, card: ModelCard, to_text: ToText
) -> None:
    allocation = Allocation(node_type=odd, partition=odd)
    spec = replace(plan.specs[0], app=odd, parameters={odd: odd}, allocation=allocation)
    run = replace(result.failures[0], spec=spec, reason=odd, log_tail=odd, phases={odd: 1.0}, source=odd)
    warned = replace(
        prediction,
        parameters={odd: odd},
        warnings=(build_warning("always-failed", odd),),
        phases={odd: prediction.basic},
    )
    renderables = [
        render_plan(replace(plan, app=odd, specs=(spec,))),
        render_progress(Progress(total=1, done=0, failed=0, running=(spec,), left_s=None, note=odd)),
        render_outcome(run),
        render_campaign_result(replace(result, app=odd, failures=(run,), stopped=odd)),
        render_runs([run], total=1),
        render_run(run),
        render_predictions([warned]),
        render_predictions([warned, warned]),
        render_model_card(replace(card, warnings=(build_warning("column-not-used", odd),))),
        render_mistakes(SpecError(odd, [Mistake(place=odd, found=odd, expected=odd)])),
    ]
    text = "".join(map(to_text, renderables))
    text.encode("utf-8")
    assert "\x1b" not in text


def test_markup_is_not_read(plan: Plan, to_text: ToText) -> None:
    assert "[bold]fcnet[/bold]: 14 runs" in to_text(render_plan(replace(plan, app="[bold]fcnet[/bold]")))


@settings(deadline=None, max_examples=40)
@given(value=odd_numbers, low=odd_numbers, high=odd_numbers)
def test_odd_numbers_are_shown(
    value: float,
    low: float,
    high: float,
    runs: list[Run],
    prediction: Prediction,
    recommendation: Recommendation,
    to_text: ToText,
) -> None:
    estimate = Estimate(value=value, low=low, high=high, level=0.9)
    odd = replace(prediction, elapsed_s=estimate, basic=estimate, custom=estimate, peak_memory_bytes=estimate)
    offer = replace(recommendation.picked, prediction=odd, risk=value)
    to_text(render_predictions([odd]))
    to_text(render_predictions([odd, odd]))
    to_text(render_recommendation(replace(recommendation, offers=(offer,), picked=offer)))
    to_text(render_run(replace(runs[0], usage=Usage(elapsed_s=value, cpu_s=low), phases={"epoch": high})))


def test_run_stopped_by_its_limit_took_longer(runs: list[Run], to_text: ToText) -> None:
    assert runs[-1].state is State.TIMED_OUT
    assert "> 30 min 00 s" in to_text(render_run(runs[-1]))


def test_many_reasons_are_cut_short(recommendation: Recommendation, to_text: ToText) -> None:
    rejection = recommendation.rejections[0]
    many = tuple(replace(rejection, reason=f"reason {number}") for number in range(20))
    same = tuple(replace(rejection, allocation=Allocation(cores=cores)) for cores in range(1, 10))
    text = to_text(render_recommendation(replace(recommendation, rejections=(*same, *many))))
    assert "and 5 more: about 25 min" in " ".join(text.split())
    assert "and for 13 other reasons" in text


@pytest.mark.parametrize("width", [80, 100])
def test_no_table_breaks_a_word(
    width: int,
    runs: list[Run],
    plan: Plan,
    result: CampaignResult,
    prediction: Prediction,
    recommendation: Recommendation,
    to_text: ToText,
) -> None:
    for renderable in (
        render_runs(runs, total=400),
        render_plan(plan),
        render_campaign_result(result),
        render_predictions([prediction, prediction]),
        render_recommendation(recommendation),
    ):
        whole, narrow = (set(to_text(renderable, columns).split()) for columns in (300, width))
        assert {word for word in whole if len(word) <= 20 and set(word) != {"─"}} <= narrow
        assert max(map(len, to_text(renderable, width).splitlines())) <= width


@pytest.mark.parametrize(
    ("first", "retry", "shown"), [(5.2, 5.3, False), (60.0, 65.0, False), (60.0, 66.0, True), (100.0, 200.0, True)]
)
def test_a_next_try_is_shown_where_it_is_larger(
    prediction: Prediction, to_text: ToText, first: float, retry: float, shown: bool
) -> None:
    request = Request(
        walltime_s=first,
        memory_bytes=int(first * 2**20),
        retries_walltime_s=(retry,),
        retries_memory=(int(retry * 2**20),),
    )
    text = to_text(render_predictions([replace(prediction, request=request)]))
    assert ("if too small" in text) is shown
    only_time = replace(request, walltime_s=retry / 3)
    assert "if too small" in to_text(render_predictions([replace(prediction, request=only_time)]))


def test_a_place_that_is_its_site_is_named_once(recommendation: Recommendation) -> None:
    offer = recommendation.picked
    place = replace(offer.allocation, node_type="local", partition=None)
    local = replace(offer, site="local", prediction=replace(offer.prediction, allocation=place))
    assert " on local for " in describe_request(local)
    assert "at local" not in describe_request(local)
