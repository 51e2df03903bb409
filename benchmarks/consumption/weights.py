"""``python -m benchmarks.consumption.weights``: learn from all that was measured what ships with the product."""

from pathlib import Path

from benchmarks.consumption.comparison import build_folds
from benchmarks.consumption.data import CORE, build_cases, read_jobs, read_profiles
from foretell.distributed.consumption_predictor import SHIPPED, SUFFIX, learn_consumption_model
from foretell.steps.step_predictor import fit_step_predictor

NOTES = ("Learned on one virtual core of a shared machine, one thread: other cores differ, and so will theirs.",)


def main() -> None:
    models = Path(__file__).parents[2] / "src" / "foretell" / "models"
    profiles = read_profiles()
    core = models / "operators" / "weights" / f"{CORE.name}{SUFFIX}"
    steps = [each.step for each in profiles]
    fit_step_predictor(steps, CORE, groups=[each.family for each in profiles], notes=NOTES).save(core)
    print(f"{core.name}: {len(profiles)} networks, {core.stat().st_size / 1e6:.1f} MB")
    jobs = read_jobs()
    shared = models / "consumption" / "weights" / f"{SHIPPED}{SUFFIX}"
    unseen = {fold.family: fold.cases for fold in build_folds(jobs, profiles)}
    learn_consumption_model(build_cases(profiles, jobs, without=""), jobs, unseen=unseen).save(shared)
    print(f"{shared.name}: {len(jobs)} jobs, {shared.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
