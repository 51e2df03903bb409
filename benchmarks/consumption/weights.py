"""``python -m benchmarks.consumption.weights``: fits the models that ship to all measured trainings."""

from pathlib import Path

from benchmarks.consumption.comparison import build_folds
from benchmarks.consumption.data import CORE, build_cases, read_jobs, read_profiles
from foretell.distributed.consumption_predictor import SHIPPED, SUFFIX, learn_consumption_model
from foretell.steps.step_predictor import fit_step_predictor

NOTES = ("Fitted to one virtual core of a shared machine, one thread; other cores differ.",)


def main() -> None:
    """Fit the core's times, then a model of each method that ships with one."""
    package = Path(__file__).parents[2] / "src" / "foretell"
    profiles = read_profiles()
    core = package / "steps" / "weights" / f"{CORE.name}{SUFFIX}"
    steps = [each.step for each in profiles]
    fit_step_predictor(steps, CORE, groups=[each.family for each in profiles], notes=NOTES).save(core)
    print(f"{core.name}: {len(profiles)} networks, {core.stat().st_size / 1e6:.1f} MB")
    jobs = read_jobs()
    cases, held_back = (
        build_cases(profiles, jobs, without=""),
        {fold.family: fold.cases for fold in build_folds(jobs, profiles)},
    )
    for method, name in SHIPPED.items():
        path = package / "distributed" / "weights" / f"{name}{SUFFIX}"
        learn_consumption_model(cases, jobs, method=method, held_back=held_back).save(path)
        print(f"{path.name}: {method}, {len(jobs)} jobs, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
