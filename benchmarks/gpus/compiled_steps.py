"""How much a compiler shortens the inference of image models of timm: predicted from code, and as measured.

The same models, sizes and batches were measured with and without ``torch.compile``; compared are the ratios of both
times, so that errors of the model of the device cancel. Nothing is fitted to them.

Run: ``python -m benchmarks.gpus.compiled_steps``
"""

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pandas as pd

from benchmarks.gpus.models import read_timm
from benchmarks.gpus.results import DATA
from benchmarks.gpus.timm_steps import _find_families
from foretell.steps.step_predictor import StepPredictor, find_step_predictor
from foretell.workloads.step_options import StepOptions

FILES = {
    "RTX4090": "benchmark-infer-amp-nchw-pt291-cu128-4090{}.csv",
    "RTXPRO6000-MaxQ": "benchmark-infer-amp-nchw-pt291-cu130-pro6000maxq{}.csv",
}
_SEED = 0


@click.command()
@click.option("--models", default=24, help="Models of each device, one of each family, drawn at random.")
@click.option("--device", "devices", multiple=True, default=tuple(FILES), type=click.Choice(tuple(FILES)))
def main(models: int, devices: tuple[str, ...]) -> None:
    """Compare predicted and measured ratios of compiled and eager times."""
    for device in devices:
        rows = pd.DataFrame(_compare(device, models))
        error = np.abs(np.log(rows["predicted"] / rows["measured"]))
        nothing = np.abs(np.log(rows["measured"]))
        click.echo(rows.round(3).to_string(index=False))
        click.echo(
            f"{device}: {len(rows)} models of as many families, median error of the ratio {np.median(error):.1%} "
            f"(90 % of them within {np.quantile(error, 0.9):.1%}); as if compiling changed nothing: "
            f"{np.median(nothing):.1%}\n"
        )


def _compare(device: str, models: int) -> Iterator[dict[str, object]]:
    predictor = find_step_predictor(device, learned=Path("none"), method=None)
    for model, row in _choose(device, models).iterrows():
        times = [_predict(predictor, str(model), row, compiled=compiled) for compiled in (False, True)]
        if None in times:
            continue
        eager, compiled = (time or 0.0 for time in times)
        yield {
            "family": row.family,
            "model": model,
            "measured": row.infer_samples_per_sec / row.infer_samples_per_sec_compiled,
            "predicted": compiled / eager,
        }


def _choose(device: str, models: int) -> pd.DataFrame:
    """Models that were measured both ways, one of each family."""
    eager, compiled = (
        pd.read_csv(DATA / "timm_benchmarks" / FILES[device].format(words)).drop_duplicates("model").set_index("model")
        for words in ("", "-dynamo")
    )
    rates = compiled["infer_samples_per_sec"].rename("infer_samples_per_sec_compiled")
    rows = eager.join(rates, how="inner")
    rows["family"] = [_find_families().get(str(model)) for model in rows.index]
    rows = rows[rows["family"].notna() & (rows["infer_samples_per_sec_compiled"] > 0)]
    shuffled = rows.sample(frac=1.0, random_state=_SEED)
    return shuffled.drop_duplicates("family").head(models).sort_values("family")


def _predict(predictor: StepPredictor, model: str, row: pd.Series, *, compiled: bool) -> float | None:
    workload = read_timm(
        model,
        batch=int(row.infer_batch_size),
        size=int(row.infer_img_size),
        options=StepOptions(mode="inference", precision="fp16", compile=compiled),
    )
    return None if workload is None else predictor.predict(workload, level=0.9).iteration.value


if __name__ == "__main__":
    main()
