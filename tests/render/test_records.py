import dataclasses
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.advice.render import build_recommendation_record, build_site_record
from foretell.apps.render import build_run_record, build_runs_table
from foretell.campaigns.campaign_plan import CampaignResult, Plan
from foretell.campaigns.render import build_plan_record, build_result_record
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Estimate, Prediction, Recommendation
from foretell.core.run import Run, Usage
from foretell.core.serialization import render_json
from foretell.core.site import Site
from foretell.core.warning import build_warning
from foretell.runtimes.render import build_card_record, build_prediction_record


def _load(value: Any) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(render_json(value), parse_constant=refuse)


def test_prediction_has_what_scripts_read(prediction: Prediction) -> None:
    record = _load(build_prediction_record(prediction))
    assert set(record) == {field.name for field in dataclasses.fields(Prediction)}
    assert record["elapsed_s"] == {"value": 750.0, "low": 637.5, "high": 900.0, "level": 0.9}
    assert record["request"] == {
        "walltime_s": 960,
        "memory_bytes": 400 * 2**20,
        "retries_walltime_s": [1440, 2880],
        "retries_memory": [800 * 2**20, 1600 * 2**20],
    }


def test_unmeasured_memory_is_null(prediction: Prediction) -> None:
    record = _load(build_prediction_record(replace(prediction, peak_memory_bytes=None)))
    assert record["peak_memory_bytes"] is None


def test_money_is_a_number(recommendation: Recommendation, site: Site) -> None:
    record = _load(build_recommendation_record(recommendation))
    assert Decimal(str(record["picked"]["cost"])) == recommendation.picked.cost
    assert record["offers"][0] == record["picked"]
    assert len(record["rejections"]) == len(recommendation.rejections)
    assert _load(build_site_record(site))["node_types"][1]["price_per_gpu_h"] == 0.09


def test_plan_result_and_card_are_json(plan: Plan, result: CampaignResult, card: ModelCard) -> None:
    planned = _load(build_plan_record(plan))
    assert planned["runs"] == len(plan.specs)
    assert [spec["id"] for spec in planned["specs"]] == [spec.id for spec in plan.specs]
    assert [run["state"] for run in _load(build_result_record(result))["failures"]] == ["failed", "timed_out"]
    assert _load(build_card_record(card))["judgements"]["elapsed_s"]["winner"] == "law SD+100%FS"


@settings(deadline=None)
@given(number=st.floats(), text=st.text(st.characters()))
def test_anything_is_json(number: float, text: str, prediction: Prediction, runs: list[Run]) -> None:
    estimate = Estimate(value=number, low=number, high=number, level=0.9)
    odd = replace(
        prediction,
        elapsed_s=estimate,
        parameters={text: number},
        warnings=(build_warning("always-failed", text, text=text),),
    )
    assert _load(build_prediction_record(odd))["warnings"] == [
        {"code": "always-failed", "text": text, "data": {"text": text}}
    ]
    _load(build_run_record(replace(runs[0], usage=Usage(elapsed_s=number), log_tail=text, phases={text: number})))


def test_table_has_a_row_a_run_and_columns_in_order(runs: list[Run]) -> None:
    table = build_runs_table(runs)
    columns = list(table.columns)
    assert len(table) == len(runs)
    assert columns[:4] == ["epochs", "hidden", "dataset", "cores"]
    assert columns[-1] == "id"
    kinds = ["epochs", "cores", "elapsed_s", "phase_epoch", "machine_hostname", "machine_cluster", "state", "id"]
    assert [columns.index(name) for name in kinds] == sorted(columns.index(name) for name in kinds)
    assert list(table["id"]) == [run.id for run in runs]


def test_table_of_nothing_has_the_usual_columns(runs: list[Run]) -> None:
    empty = build_runs_table([])
    assert len(empty) == 0
    assert set(empty.columns) <= set(build_runs_table(runs).columns)


def test_parameter_named_like_our_column_keeps_apart(runs: list[Run]) -> None:
    spec = replace(runs[0].spec, parameters={"state": "ohio", "machine_cores": 3, "phase_x": 1})
    record = build_run_record(replace(runs[0], spec=spec))
    assert (record["parameter_state"], record["state"]) == ("ohio", "completed")
    assert (record["parameter_machine_cores"], record["machine_cores"]) == (3, 40)
    assert record["parameter_phase_x"] == 1
