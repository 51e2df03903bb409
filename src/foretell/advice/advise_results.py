"""What is advised for a training: the offers of each site, the pick, the runner-up, and what does not work."""

from dataclasses import dataclass
from decimal import Decimal

from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_local_run import MadeRun
from foretell.advice.evidence_next_run import NextRun
from foretell.advice.evidence_steps import CombinedSteps
from foretell.advice.policy import Policy
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.core.prediction import Offer, Recommendation
from foretell.core.run import Allocation
from foretell.core.site import Site
from foretell.core.warning import PredictionWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOffer:
    """An offer for a training: the allocation with time, cost and risk, and how its GPUs share the step.

    ``allowed``: within the limits of time and cost.
    """

    offer: Offer
    candidate: Candidate
    allowed: bool

    @property
    def allocation(self) -> Allocation:
        return self.offer.allocation

    @property
    def time_s(self) -> float:
        """The expected time of the job."""
        return self.offer.prediction.elapsed_s.value

    @property
    def longest_s(self) -> float:
        """The upper bound of its time."""
        return self.offer.prediction.elapsed_s.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best alternative, and what it would change against the pick: less than 0 is quicker or cheaper."""

    offer: TrainingOffer
    time_change_s: float
    cost_change: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """What the limits would buy where nothing ends within them: so many epochs, by the upper bound of the time."""

    offer: TrainingOffer
    epochs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAdvice:
    """The offers of a site, best first; those beyond the limits are last. Without a pick, ``problem`` says why."""

    site: Site
    offers: tuple[TrainingOffer, ...]
    obstacles: tuple[Obstacle, ...]
    picked: TrainingOffer | None = None
    why: str = ""
    runner_up: RunnerUp | None = None
    problem: str = ""
    purchase: Purchase | None = None

    def recommend(self, name: str) -> Recommendation:
        """The pick and the offers, as for an app whose runs are known."""
        assert self.picked is not None
        offers = tuple(each.offer for each in self.offers)
        return Recommendation(app=name, offers=offers, picked=self.picked.offer, why=self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The advice for a training at one site, or at several that are compared; the first of these is the best."""

    job: TrainingJob
    policy: Policy
    sites: tuple[SiteAdvice, ...]
    risk: float
    level: float
    identity: TrainingIdentity  # by which runs of the same training are known
    combined: CombinedSteps | None = None  # what measured runs changed
    number: int = 0  # of the pick among the combined steps
    next_run: NextRun | None = None  # that would narrow the interval of the pick most
    made: MadeRun | None = None  # that was made here, after the first answer
    before: "Advice | None" = None  # the first answer
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def best(self) -> SiteAdvice:
        """The site that is picked."""
        return self.sites[0]

    @property
    def picked(self) -> TrainingOffer:
        """What to request."""
        picked = self.best.picked
        assert picked is not None
        return picked
