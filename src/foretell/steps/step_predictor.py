"""From a training step's operators to how long it takes on a device, and how sure that is."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from foretell.core.devices import Device
from foretell.core.errors import NotFoundError, StoreError
from foretell.core.intervals import NO_SPREAD, QuantileSpread, build_estimate
from foretell.core.model_checks import read_rising
from foretell.core.model_files import load_model, save_model
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import MeasuredStep, StepEstimate, StepPhase, Workload
from foretell.steps._base import StepTimes
from foretell.steps.replay import ReplayModel
from foretell.steps.serial_replay import SerialModel
from foretell.steps.step_results import KnownDevice

SUFFIX = ".safetensors"
_MODELS: tuple[type[ReplayModel] | type[SerialModel], ...] = (ReplayModel, SerialModel)
_QUANTILES = 201
_FOLDS = 2
_MOST_PROFILES = 2  # from here on, more of them are not told apart
_UNKNOWN = np.log(1.5)  # where nothing was held back to learn from
_HINT = "Learn your own with 'foretell device learn'."


class StepPredictor:
    """A model of a device, with how far it was off on steps it had not seen, by how many profiles it was given."""

    def __init__(
        self, model: ReplayModel | SerialModel, *, spreads: Mapping[int, QuantileSpread], notes: Sequence[str] = ()
    ) -> None:
        self.model = model
        self.spreads = dict(spreads)
        self.notes = tuple(notes)

    @property
    def warnings(self) -> tuple[PredictionWarning, ...]:
        """What to know of every prediction for this device."""
        return tuple(build_warning("limited-model", note, device=self.device.name) for note in self.notes)

    @property
    def device(self) -> Device:
        """What it tells the times of."""
        return self.model.device

    def predict(self, workload: Workload, *, profiles: Sequence[MeasuredStep] = (), level: float = 0.9) -> StepEstimate:
        """How long a step takes; closer with profiles of the same network, at this or at other sizes."""
        model = self.model.refine(profiles) if profiles else self.model
        times = model.predict([workload])[0]
        return _build_estimate(workload, times, self.bound(times.iteration_s, profiles=len(profiles), level=level))

    def bound(self, iteration_s: float, *, profiles: int = 0, level: float) -> Estimate:
        """An iteration with its interval, which is narrower with profiles."""
        known = [count for count in sorted(self.spreads) if count <= min(profiles, _MOST_PROFILES)]
        if not known:
            return build_estimate(iteration_s, NO_SPREAD, level=level, shift=_UNKNOWN)
        return build_estimate(iteration_s, self.spreads[known[-1]], level=level)

    def save(self, path: Path) -> None:
        """Keep it as one file.

        Raises:
            StoreError: if it cannot be written.
        """
        spreads = {str(count): spread.round() for count, spread in self.spreads.items()}
        save_model(path, self.model, {"spreads": spreads, "notes": list(self.notes)})


def load_step_predictor(path: Path) -> StepPredictor:
    """A predictor that was kept.

    Raises:
        StoreError: if the file is none.
    """
    model, facts = load_model(path, _MODELS, remedy="learn the device again")
    try:
        spreads = {
            int(count): QuantileSpread(quantiles=tuple(read_rising(values, count=_QUANTILES).tolist()))
            for count, values in facts["spreads"].items()
        }
        return StepPredictor(model, spreads=spreads, notes=[str(note) for note in facts["notes"]])
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise StoreError(
            f"{path}: a model of training steps without its errors ({exc}); learn the device again"
        ) from exc


def find_step_predictor(device: str, *, learned: Path | None = None) -> StepPredictor:
    """The predictor for a device: the one that was learned here before the one that ships.

    Raises:
        NotFoundError: if there is none.
    """
    files = _list_files(learned)
    named = {_spell(name): path for name, (path, _times) in files.items()}
    if _spell(device) not in named:
        raise NotFoundError("device with known times", device, known=list(files), hint=_HINT)
    return load_step_predictor(named[_spell(device)])


def load_shipped_predictors() -> list[StepPredictor]:
    """The predictors that ship."""
    return [load_step_predictor(path) for path in sorted(_find_shipped().glob(f"*{SUFFIX}"))]


def list_step_predictors(*, learned: Path | None = None) -> list[KnownDevice]:
    """Devices whose times are known, those learned here first."""
    return [
        KnownDevice(device=load_step_predictor(path).device, times=times)
        for path, times in _list_files(learned).values()
    ]


def fit_step_predictor(
    steps: Sequence[MeasuredStep],
    device: Device,
    *,
    groups: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> StepPredictor:
    """Learn a device from measured steps; how far off it is comes from groups of steps that are held back.

    A group are steps that tell of each other, such as a family of networks; each step is its own where none are named.
    """
    kind = _choose_kind(steps)
    names = list(groups or map(str, range(len(steps))))
    return StepPredictor(
        kind(device, seed=seed).fit(steps), spreads=measure_spreads(kind, steps, names, device, seed=seed), notes=notes
    )


def _choose_kind(steps: Sequence[MeasuredStep]) -> type[ReplayModel] | type[SerialModel]:
    """Where each launch is a start, host and device are one."""
    return SerialModel if all(np.array_equal(s.launch_s, s.start_s, equal_nan=True) for s in steps) else ReplayModel


def measure_spreads(
    kind: type[ReplayModel] | type[SerialModel],
    steps: Sequence[MeasuredStep],
    groups: Sequence[str],
    device: Device,
    *,
    seed: int = 0,
) -> dict[int, QuantileSpread]:
    """Quantiles of log(actual ÷ predicted) on groups that were held back, without and with profiles."""
    names = sorted(set(groups))
    draw = np.random.default_rng(seed)
    fold_of = dict(zip(draw.permutation(names).tolist(), [n % _FOLDS for n in range(len(names))], strict=True))
    errors: dict[int, list[float]] = {count: [] for count in range(_MOST_PROFILES + 1)}
    for fold in range(_FOLDS if len(names) > 1 else 0):
        inside = [step for step, group in zip(steps, groups, strict=True) if fold_of[group] != fold]
        held = [step for step, group in zip(steps, groups, strict=True) if fold_of[group] == fold]
        model = kind(device, seed=seed).fit(inside)
        errors[0] += _compare(held, model.predict([step.workload for step in held]))
        for count in range(1, _MOST_PROFILES + 1):
            errors[count] += _try_profiles(model, held, count, draw)
    return {count: QuantileSpread.learn(values, count=_QUANTILES) for count, values in errors.items() if values}


def _try_profiles(
    model: ReplayModel | SerialModel, held: Sequence[MeasuredStep], count: int, draw: np.random.Generator
) -> list[float]:
    """Errors on the other steps of a network, after profiles of some."""
    networks: dict[str, list[MeasuredStep]] = {}
    for step in held:
        networks.setdefault(step.workload.name, []).append(step)
    errors: list[float] = []
    for same in networks.values():
        if len(same) > count:
            chosen = set(draw.choice(len(same), count, replace=False).tolist())
            rest = [step for number, step in enumerate(same) if number not in chosen]
            refined = model.refine([same[number] for number in chosen])
            errors += _compare(rest, refined.predict([step.workload for step in rest]))
    return errors


def _compare(steps: Sequence[MeasuredStep], told: Sequence[StepTimes]) -> list[float]:
    return [float(np.log(step.iteration_s / times.iteration_s)) for step, times in zip(steps, told, strict=True)]


def _build_estimate(workload: Workload, times: StepTimes, iteration: Estimate) -> StepEstimate:
    whole = times.kernel_s + times.gap_s
    phases = {
        phase: float(sum(whole[n] for n, operator in enumerate(workload.operators) if operator.phase is phase))
        for phase in StepPhase
    }
    value = times.iteration_s
    busy = min(float(times.kernel_s.sum()), value)
    return StepEstimate(
        iteration=iteration,
        phases=phases,
        busy_s=busy,
        overhead_s=value - busy,
        kernel_s=times.kernel_s,
        gap_s=times.gap_s,
    )


def _list_files(learned: Path | None) -> dict[str, tuple[Path, str]]:
    """Files by the device's name: learned ones hide shipped ones."""
    own = sorted(learned.glob(f"*{SUFFIX}")) if learned and learned.is_dir() else []
    found: dict[str, tuple[Path, str]] = {path.stem: (path, "learned") for path in own}
    for path in sorted(_find_shipped().glob(f"*{SUFFIX}")):
        found.setdefault(path.stem, (path, "shipped"))
    return found


def _find_shipped() -> Path:
    return Path(str(resources.files("foretell.steps") / "weights"))


def _spell(name: str) -> str:
    """Small letters and digits only."""
    return "".join(filter(str.isalnum, name.lower()))


__all__ = [
    "StepPredictor",
    "find_step_predictor",
    "fit_step_predictor",
    "list_step_predictors",
    "load_shipped_predictors",
    "load_step_predictor",
    "measure_spreads",
]
