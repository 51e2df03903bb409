"""Advice for a training: from a model's code or a script, and a budget, to what to request where."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.advice.advise_results import Advice
from foretell.advice.evidence_runs import ProfileSetting
from foretell.advice.evidence_steps import StepEvidence
from foretell.advice.known_runs import find_known_runs
from foretell.advice.policy import Policy, choose_policy
from foretell.advice.script_strategy import find_strategy
from foretell.advice.site_lookup import LOCAL, find_site
from foretell.advice.training_answer import RunMaker, TriedTraining, build_comparison
from foretell.advice.training_candidates import CandidateSearch, build_layouts
from foretell.advice.training_plan import RecordedTraining, TrainingPlan, build_job, find_length_mistakes
from foretell.advice.training_runs import ModelRuns, ScriptRuns
from foretell.advice.training_script import build_command
from foretell.core.errors import ForetellError, Mistake, NotFoundError, SpecError
from foretell.core.layouts import parse_layout
from foretell.core.site import Site
from foretell.core.workload import Workload
from foretell.steps.api import DEVICES, KEPT, Input, check_batch, read_arguments, read_inputs
from foretell.steps.step_predictor import find_step_predictor, list_step_predictors
from foretell.stores.opening import StoreLike
from foretell.workloads.api import SCRIPT_TIMEOUT_S, read_memory, read_script, read_workload
from foretell.workloads.scripts.script_facts import ScriptFacts
from foretell.workloads.step_options import StepOptions

LEVEL, RISK = 0.9, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOptions:
    """How sites are searched.

    ``layout`` is the only way to share the step that is tried; by default all of a model's, and a script's own.
    ``risk`` is that of a walltime that is too short, and that of a GPU whose memory is. ``folder`` has the devices that
    were learned here, ``cpu`` names the one for nodes whose CPU has no model. ``runs`` of the same training, wherever
    they were made, correct the predictions from its code: by default those in the ``store``. ``jobs``, and others that
    earlier advice led to, are added to these. ``then_run`` makes a run on this machine and answers again.
    """

    layout: str | None = None
    level: float = LEVEL
    risk: float = RISK
    folder: Path = KEPT
    cpu: str | None = None
    runs: tuple[StepEvidence, ...] | None = None
    store: StoreLike = None
    jobs: tuple[str, ...] = ()
    then_run: bool = False


def advise(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    plan: TrainingPlan,
    sites: Sequence[Site | str] = (LOCAL,),
    policy: Policy | None = None,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
    command: Sequence[str] = (),
    search: AdviceOptions | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """What to request for the training of a model, of every GPU count, layout and node type of the sites.

    The batch of the inputs is that of a step on all GPUs, unless ``plan.batch_per_gpu``. ``command`` is what the job
    runs; by default the file of the model. Of several sites, each has its offers, and the best one is the first.

    Raises:
        InfeasibleError: Nothing works, or nothing within the limits; it names the nearest changes.
        NotFoundError: There is no such site, file, module or factory.
        SpecError: An option cannot be used, or it is not known how long the training is; with every mistake.
        MissingExtraError, WorkloadError: As :func:`foretell.read_workload`.
    """
    search, chosen = search or AdviceOptions(), options or StepOptions()
    places = _prepare(sites, search, plan, chosen)
    check_batch(batch)
    on_progress("Reading the model…")
    given, named = read_inputs(inputs), read_arguments(arguments)
    alone = replace(chosen, accumulation=1)
    recorded = RecordedTraining(
        workload=read_workload(source, given, arguments=named, options=alone, batch=batch),
        memory=read_memory(source, given, arguments=named, options=alone, batch=batch),
        command=tuple(command) or build_command(source),
        accumulation=chosen.accumulation,
    )
    model = ModelRuns(source, given, named, chosen, store=search.store, folder=search.folder)
    tried = _try(recorded, plan, places, policy, search, on_progress, read=model.read, command_known=bool(command))
    return _answer(tried, search, on_progress, command=tuple(command), make=model.make, profiled=model.setting)


def advise_script(
    command: Sequence[str],
    *,
    plan: TrainingPlan | None = None,
    sites: Sequence[Site | str] = (LOCAL,),
    policy: Policy | None = None,
    search: AdviceOptions | None = None,
    timeout_s: float = SCRIPT_TIMEOUT_S,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """The same for a script as it is, as ``["python", "train.py", "--epochs", "90"]``.

    It starts in this folder, without a GPU, and ends after its second step. Its epochs, samples and loaders are used
    where it shows them and ``plan`` does not say otherwise. Its batch is that of each process, so that a step of
    several GPUs has more examples, unless ``plan.batch_per_gpu`` is ``False``.

    Raises:
        InfeasibleError, NotFoundError, SpecError: As :func:`advise`.
        MissingExtraError, NotFoundError, WorkloadError: As :func:`foretell.read_script`.
    """
    search, plan = search or AdviceOptions(), plan or TrainingPlan()
    places = _prepare(sites, search, plan, None)
    script = read_script(command, timeout_s=timeout_s, on_progress=on_progress, memory=True)
    recorded = RecordedTraining(
        workload=script.workload,
        memory=script.memory,
        facts=script.facts,
        command=tuple(command),
        accumulation=max(1, int(script.workload.settings.get("accumulation", "1"))),
        warnings=script.warnings,
    )
    layout = search.layout or find_strategy(script)
    runs = ScriptRuns(tuple(command), timeout_s=timeout_s, store=search.store, on_progress=on_progress)
    tried = _try(recorded, plan, places, policy, replace(search, layout=layout), on_progress)
    return _answer(tried, search, on_progress, command=tuple(command), make=runs.make)


def _try(
    recorded: RecordedTraining,
    plan: TrainingPlan,
    sites: Sequence[Site],
    policy: Policy | None,
    search: AdviceOptions,
    on_progress: Callable[[str], None],
    *,
    read: Callable[[int], Workload | None] = lambda _: None,
    command_known: bool = True,
) -> TriedTraining:
    """One recorded step on every allocation of every site."""
    job, learned = build_job(plan, recorded, level=search.level), search.folder / DEVICES
    tried = CandidateSearch(
        job,
        recorded,
        build_layouts(recorded, risk=search.risk, level=search.level, learned=learned),
        layout=search.layout,
        level=search.level,
        learned=learned,
        cpu=search.cpu,
    )
    return TriedTraining(
        job=job,
        recorded=recorded,
        sites=sites,
        found=[list(tried.search(site, on_progress)) for site in sites],
        policy=policy or choose_policy(),
        comparison=build_comparison(job, recorded, read=read, learned=learned, level=search.level),
        risk=search.risk,
        level=search.level,
        command_known=command_known,
    )


def _answer(
    tried: TriedTraining,
    search: AdviceOptions,
    on_progress: Callable[[str], None],
    *,
    command: tuple[str, ...],
    make: RunMaker,
    profiled: ProfileSetting | None = None,
) -> Advice:
    """The advice with the runs that are known, and with one more if that is asked for."""
    known = find_known_runs(
        tried.identity,
        tried.job,
        runs=search.runs,
        jobs=search.jobs,
        command=command,
        store=search.store,
        folder=search.folder,
        profiled=profiled,
    )
    advice = tried.answer(known.runs)
    if search.then_run:
        on_progress("Running some steps of the training here…")
        advice = tried.answer_again(advice, known.runs, make)
    return replace(advice, warnings=(*known.warnings, *advice.warnings))


def _prepare(
    sites: Sequence[Site | str], search: AdviceOptions, plan: TrainingPlan, options: StepOptions | None
) -> list[Site]:
    """The sites, before anything is read; all mistakes are reported at once.

    Raises:
        NotFoundError, SiteError: There is no such site, if that is the only mistake.
        SpecError: A number cannot be used, or the layout is none.
    """
    mistakes = [*_check_plan(plan), *_check_options(options)]
    if options is not None:  # a script may show what the plan leaves out
        mistakes += find_length_mistakes(plan, ScriptFacts())
    errors: list[ForetellError] = []
    found = []
    for each in sites:
        try:
            found.append(find_site(each) if isinstance(each, str) else each)
        except ForetellError as exc:
            errors.append(exc)
            mistakes.append(Mistake(place="--site", found=repr(each), expected=str(exc)))
    try:
        _check_layout(search.layout)
    except SpecError as exc:
        errors.append(exc)
        mistakes += exc.mistakes
    mistakes += _check_cpu(search)
    if len(errors) == len(mistakes) == 1:
        raise errors[0]
    if mistakes:
        raise SpecError("options", mistakes)
    return found


def _check_layout(layout: str | None) -> None:
    if layout is not None:
        parse_layout(layout)


def _check_cpu(search: AdviceOptions) -> list[Mistake]:
    """That the named model is there, and one of a CPU."""
    if search.cpu is None:
        return []
    learned = search.folder / DEVICES
    known = [each.device.name for each in list_step_predictors(learned=learned) if each.device.kind == "cpu"]
    try:
        if find_step_predictor(search.cpu, learned=learned).device.kind == "cpu":
            return []
    except NotFoundError:
        pass
    expected = f"a model of a CPU: {', '.join(known)}; 'foretell device learn' makes one of the machine it runs on"
    return [Mistake(place="--cpu", found=repr(search.cpu), expected=expected)]


def _check_plan(plan: TrainingPlan) -> list[Mistake]:
    counts = {"--epochs": plan.epochs, "--steps": plan.steps, "--samples": plan.samples}
    return [
        Mistake(place=name, found=f"{value:g}", expected="a number above 0")
        for name, value in counts.items()
        if value is not None and not 0 < value < math.inf
    ]


def _check_options(options: StepOptions | None) -> list[Mistake]:
    if options is None or options.mode == "training":
        return []
    return [Mistake(place="--mode", found=options.mode, expected="training: advice is for trainings")]
