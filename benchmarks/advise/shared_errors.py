"""Which part of an error a network has on every device, which on one device, and which in one batch only.

The errors of predictions of measured steps are the rows. Those of one application (a network in a mode and a precision)
are the sum of a part of the network, one of the device and one of the batch, drawn from a multivariate t distribution;
its shares are found by maximum likelihood. What all networks have in common on a device is taken away first.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from benchmarks.advise.measured_errors import LANGUAGE, PredictedLabel, list_predicted
from foretell.advice.evidence_errors import ErrorShares
from foretell.core.workload import Floats

_START = np.array([0.0, -1.0, 1.0, 1.0])  # logits of the shares of network and device, log of freedom - 2 and doublings
_ROUNDS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedErrors:
    """The shares of one protocol, or of all together, and how errors of a network on two devices are correlated."""

    protocol: str
    applications: int
    rows: int
    shares: ErrorShares
    correlation: float  # of the ranks of errors of a network on two devices


def measure_shared_errors(labels: Sequence[PredictedLabel] | None = None) -> list[SharedErrors]:
    """The shares of each protocol, and of all of image models."""
    labels = list_predicted() if labels is None else labels
    protocols = list(dict.fromkeys(each.protocol for each in labels))
    groups = {name: build_groups([each for each in labels if each.protocol == name]) for name in protocols}
    found = [_describe(name, {name: groups[name]}) for name in protocols]
    images = {name: group for name, group in groups.items() if name != LANGUAGE}
    return [*found, _describe("all image models", images)]


def print_shared_errors() -> None:
    """Print the shares."""
    for each in measure_shared_errors():
        shares = each.shares
        print(
            f"{each.protocol:20} {each.applications:4} applications {each.rows:4} rows: network {shares.network:.2f} "
            f"device {shares.device:.2f} setting {shares.setting:.2f}, freedom {shares.freedom:.1f}, batches "
            f"{shares.batch_doublings:.1f} doublings, rank correlation across devices {each.correlation:.2f}"
        )


def fit_shares(labels: Sequence[PredictedLabel]) -> ErrorShares:
    """The shares that make errors of all protocols most likely, each protocol with a scale of its own."""
    protocols = list(dict.fromkeys(each.protocol for each in labels))
    return _fit({name: build_groups([each for each in labels if each.protocol == name]) for name in protocols})


@dataclass(frozen=True, slots=True)
class Group:
    """The errors of an application."""

    errors: Floats
    same_device: Floats
    doublings: Floats  # between batches; infinite on different devices
    devices: tuple[str, ...]


def build_groups(labels: Sequence[PredictedLabel]) -> list[Group]:
    """Errors by application, without what is common on a device."""
    by_device: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in labels:
        by_device[each.device, each.step.case.label.mode].append(each.step.error)
    common = {key: float(np.median(errors)) for key, errors in by_device.items()}
    by_application: dict[str, list[PredictedLabel]] = defaultdict(list)
    for each in labels:
        by_application[each.application].append(each)
    return [_build_group(each, common) for each in by_application.values()]


def _build_group(labels: Sequence[PredictedLabel], common: Mapping[tuple[str, str], float]) -> Group:
    devices = tuple(each.device for each in labels)
    same = np.array([[float(one == other) for other in devices] for one in devices])
    batches = np.log2([each.step.case.label.batch for each in labels])
    errors = [each.step.error - common[each.device, each.step.case.label.mode] for each in labels]
    apart = np.where(same > 0, np.abs(batches[:, None] - batches[None]), np.inf)
    return Group(np.array(errors), same, apart, devices)


def _describe(name: str, groups: Mapping[str, Sequence[Group]]) -> SharedErrors:
    every = [group for each in groups.values() for group in each]
    return SharedErrors(
        protocol=name,
        applications=len(every),
        rows=sum(len(group.errors) for group in every),
        shares=_fit(groups),
        correlation=_correlate(every),
    )


def _fit(groups: Mapping[str, Sequence[Group]]) -> ErrorShares:
    start = np.concatenate([_START, np.full(len(groups), np.log(0.08))])
    options = {"maxiter": _ROUNDS, "xatol": 1e-3, "fatol": 1e-3}
    search: Any = minimize  # whose types are those of all its methods
    return _read(search(lambda each: -_weigh(each, groups), start, method="Nelder-Mead", options=options).x)


def _read(parameters: Floats) -> ErrorShares:
    parts = np.exp([parameters[0], parameters[1], 0.0])
    network, device, _ = parts / parts.sum()
    return ErrorShares(
        network=float(network),
        device=float(device),
        freedom=2.0 + float(np.exp(min(parameters[2], 4.0))),
        batch_doublings=float(np.exp(np.clip(parameters[3], -2.0, 4.0))),
    )


def _weigh(parameters: Floats, groups: Mapping[str, Sequence[Group]]) -> float:
    """The logarithm of the likelihood, with a weak prior of the shares."""
    shares = _read(parameters)
    scales = np.exp(parameters[len(_START) :])
    total = -0.5 * float((parameters[: len(_START)] - _START) @ (parameters[: len(_START)] - _START)) / 4.0
    for scale, each in zip(scales, groups.values(), strict=True):
        total += sum(_weigh_group(group, float(scale), shares) for group in each)
    return total


def _weigh_group(group: Group, scale: float, shares: ErrorShares) -> float:
    alike = np.exp(-group.doublings / shares.batch_doublings)
    spread = scale**2 * (shares.network + shares.device * group.same_device + shares.setting * alike)
    spread += np.eye(len(spread)) * (0.01 * scale) ** 2
    count, freedom = len(group.errors), shares.freedom
    squares = float(group.errors @ np.linalg.solve(spread, group.errors))
    constant = gammaln((freedom + count) / 2) - gammaln(freedom / 2) - count / 2 * np.log(freedom * np.pi)
    slope = (freedom + count) / 2 * np.log1p(squares / freedom)
    return float(constant - np.linalg.slogdet(spread)[1] / 2 - slope)


def _correlate(groups: Sequence[Group]) -> float:
    """The rank correlation of the mean errors of a network on two devices."""
    pairs = []
    for group in groups:
        means = {name: group.errors[np.array(group.devices) == name].mean() for name in dict.fromkeys(group.devices)}
        names = sorted(means)
        pairs += [(means[one], means[other]) for place, one in enumerate(names) for other in names[place + 1 :]]
    if len(pairs) < 3:
        return float("nan")
    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
    return float(np.asarray(np.corrcoef(ranks.T))[0, 1])


if __name__ == "__main__":
    print_shared_errors()
