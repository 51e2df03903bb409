"""Gaussian processes on logarithms: smooth, with power laws inside, and sure where the runs are."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import check_numbers, read_number, read_place
from foretell.core.serialization import from_record, to_record
from foretell.runtimes.regressors._base import SMALLEST, Floats, RunRegressor, State, predict_distinct
from foretell.runtimes.regressors.gaussian_process_kernel import Kernel, Pairs, fit_axis

_MEAN_VARIANCE = 1.0  # of the process's own level, in units of the target's variance
_JITTER = 1e-8
_NOISE = (np.log(0.02), 2.0)  # belief of the noise's logarithm: around 2 %, give or take a factor of seven
_QUIETEST = -8.0
_HEAVY_TAIL = 4.0  # degrees of freedom of the noise: a few runs are far off, and should not bend the rest
_LARGEST_LOG = 690.0
_STEEPEST = 2.0  # the power of a size that times are let grow with where no run was made
_UNSURE = 1.0  # by how much such a power may be off, as a standard deviation
_NOTHING = 1e-9
_STEADIEST = 0.005  # no clock or allocator repeats itself nearer than this, however little noise the runs had
_MOST_ROWS = 10_000  # in a file: each is a number for every row that is predicted
_MOST_KERNELS = 100
_ARRAYS = ("theta", "rows", "alpha", "whitening")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One fitted process: its hyperparameters (the last is the noise's logarithm), and what predictions are made of.

    ``whitening`` is the inverse of the Cholesky factor of the first rows' covariance.
    """

    kernel: Kernel
    theta: Floats
    rows: Floats
    alpha: Floats
    whitening: Floats

    def find_mean(self, X: Floats) -> Floats:
        Z = self.kernel.read(X)
        return np.asarray(self._covary(Z, self.rows) @ self.alpha)

    def find_variance(self, X: Floats) -> Floats:
        """The variance of a new run."""
        Z, noise = self.kernel.read(X), np.exp(2 * self.theta[-1])
        own = self.kernel.variance(Z, self.theta[:-1]) + _MEAN_VARIANCE + noise
        return np.asarray(np.maximum(own - np.sum(self._whiten(Z) ** 2, axis=0), noise))

    def find_narrowing(self, questions: Floats, options: Floats) -> Floats:
        """By how much one run of each option would lower the questions' mean variance."""
        Q, C = self.kernel.read(questions), self.kernel.read(options)
        white_q, white_c = self._whiten(Q), self._whiten(C)
        both = self._covary(Q, C) - white_q.T @ white_c
        own = self.kernel.variance(C, self.theta[:-1]) + _MEAN_VARIANCE - np.sum(white_c**2, axis=0)
        return np.asarray(np.mean(both**2, axis=0) / (np.maximum(own, 0) + np.exp(2 * self.theta[-1])))

    def _whiten(self, Z: Floats) -> Floats:
        return np.asarray(self.whitening @ self._covary(Z, self.rows[: len(self.whitening)]).T)

    def _covary(self, A: Floats, B: Floats) -> Floats:
        return self.kernel.covariance(A, B, self.theta[:-1]) + _MEAN_VARIANCE


class GaussianProcessRunRegressor(RunRegressor):
    """The mean of Gaussian processes on log(target) that read the columns a little differently.

    Hyperparameters are the most probable ones given the runs; their gradient is exact. Rows of one configuration are
    merged. Beyond ``most_rows`` configurations those of most weight are used. ``search_rows`` of them are used to find
    the hyperparameters, and for the standard deviation of predictions.
    """

    complexity = 4
    scale_: float
    processes_: list[Process]

    def __init__(
        self,
        projections: tuple[int, ...] = (0, 1),
        most_rows: int = 800,
        search_rows: int = 200,
        steps: int = 25,
        seed: int = 0,
    ) -> None:
        self.projections = projections
        self.most_rows = most_rows
        self.search_rows = search_rows
        self.steps = steps
        self.seed = seed

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self._fit_from(X, y, weight, None)

    def _fit_like(self, like: Self, X: Floats, y: Floats, weight: Floats) -> None:
        same = len(y) > 2 * self.search_rows and np.array_equal(like.columns_, np.flatnonzero(np.ptp(X, axis=0) > 0))
        self._fit_from(X, y, weight, like if same else None)

    def _fit_from(self, X: Floats, y: Floats, weight: Floats, like: Self | None) -> None:
        X, target, weight = _merge_repeats(X, np.log(np.maximum(y, SMALLEST)), weight)
        shuffled = np.random.default_rng(self.seed).permutation(len(X))
        kept = np.sort(np.argsort(-weight[shuffled], kind="stable")[: self.most_rows])
        X, target, weight = X[shuffled][kept], target[shuffled][kept], weight[shuffled][kept]
        self.columns_ = np.flatnonzero(np.ptp(X, axis=0) > 0)
        self.low_, self.high_ = X.min(axis=0), X.max(axis=0)
        self.mean_ = float(target.mean())
        self.scale_ = float(max(target.std(), 1e-3)) if like is None else like.scale_
        rows = _Rows(X=X[:, self.columns_], target=(target - self.mean_) / self.scale_, weight=weight)
        known: list[tuple[Kernel, Floats | None]] = (
            [(kernel, None) for kernel in self._list_kernels(rows.X)]
            if like is None
            else [(process.kernel, process.theta) for process in like.processes_]
        )
        self.processes_ = [self._fit_process(kernel, theta, rows) for kernel, theta in known]

    def _list_kernels(self, X: Floats) -> list[Kernel]:
        axes = tuple(fit_axis(column) for column in X.T)
        several = sum(axis.smooth for axis in axes) > 1
        counts = sorted({count if several else 0 for count in self.projections})
        return [Kernel(axes=axes, projections=count) for count in counts]

    def _fit_process(self, kernel: Kernel, theta: Floats | None, rows: "_Rows") -> Process:
        from scipy.linalg import cho_solve, solve_triangular

        search = self._search(kernel)
        few_rows = self.search_rows if len(rows.target) > 1.5 * self.search_rows else len(rows.target)
        few = rows.take(slice(0, few_rows))
        if theta is None:
            theta = search.find(few, search.start(few))
            few = few.weighed(_find_trust(_covary(kernel, few, theta), few, theta))
            theta = search.find(few, theta)
        K = _covary(kernel, rows, theta)
        rows = rows.weighed(_find_trust(K, rows, theta))
        few = rows.take(slice(0, few_rows))
        own = len(few.target)
        factor = _factorise(K[:own, :own], few, theta)
        return Process(
            kernel=kernel,
            theta=theta,
            rows=kernel.read(rows.X),
            alpha=cho_solve((_factorise(K, rows, theta), True), rows.target),
            whitening=solve_triangular(factor, np.eye(own), lower=True),
        )

    def _search(self, kernel: Kernel) -> "_Search":
        expected, spread = kernel.prior()
        expected = np.append(expected, _NOISE[0] - np.log(self.scale_))
        return _Search(
            kernel=kernel, expected=expected, spread=np.append(spread, _NOISE[1]), steps=self.steps, seed=self.seed
        )

    def _predict(self, X: Floats) -> Any:
        return predict_distinct(self._predict_each, X)

    def _predict_each(self, X: Floats) -> Floats:
        means = self._find_means(X)
        outside, near, away = self._find_outside(X)
        if len(outside):
            edge = self._find_means(near)
            means[outside] = edge + np.clip(means[outside] - edge, -_STEEPEST * away, _STEEPEST * away)
        return np.asarray(np.exp(np.clip(means, -_LARGEST_LOG, _LARGEST_LOG)))

    def _find_outside(self, X: Floats) -> tuple[NDArray[np.intp], Floats, Floats]:
        """Rows outside the runs, the nearest rows inside, and how far they are apart, in logs.

        A column that is not positive counts in ranges beyond its own: one more is twice as large.
        """
        low, high, log = self.low_, self.high_, self.low_ > 0
        varied = high > low
        bounded = varied | log
        near = np.clip(X, np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf))
        outside = np.flatnonzero((near != X).any(axis=1))
        asked, inside = np.maximum(X[outside], np.where(log, low * _NOTHING, -np.inf)), near[outside]
        ratio = np.where(log, asked / np.where(log, inside, 1.0), 1.0)
        ranges = np.where(varied & ~log, np.abs(asked - inside) / np.where(varied, high - low, 1.0), 0.0)
        return outside, near[outside], (np.abs(np.log(ratio)) + np.log1p(ranges)).sum(axis=1)

    def _find_means(self, X: Floats) -> Floats:
        means = [process.find_mean(X[:, self.columns_]) for process in self.processes_]
        return np.asarray(np.mean(means, axis=0) * self.scale_ + self.mean_)

    def spread(self, X: Floats) -> Floats:
        """How far a new run may lie from the prediction, as the standard deviation of its logarithm."""
        return predict_distinct(self._spread_each, X)

    def _spread_each(self, X: Floats) -> Floats:
        deviations = self._find_deviations(X)
        outside, near, away = self._find_outside(X)
        if len(outside):
            deviations[outside] = np.minimum(deviations[outside], self._find_deviations(near) + _UNSURE * away)
        return deviations

    def _find_deviations(self, X: Floats) -> Floats:
        variances = [process.find_variance(X[:, self.columns_]) for process in self.processes_]
        return np.asarray(np.hypot(np.sqrt(np.mean(variances, axis=0)) * self.scale_, _STEADIEST))

    def narrowing(self, questions: Floats, options: Floats) -> Floats:
        """By how much one run of each option would lower the questions' mean variance of the logarithm."""
        Q, C = questions[:, self.columns_], options[:, self.columns_]
        gains = [process.find_narrowing(Q, C) for process in self.processes_]
        return np.asarray(np.mean(gains, axis=0) * self.scale_**2)

    def to_state(self) -> State:
        arrays = {"columns": self.columns_, "low": self.low_, "high": self.high_}
        for place, process in enumerate(self.processes_):
            arrays |= {f"{name}{place}": getattr(process, name) for name in _ARRAYS}
        kernels = [to_record(process.kernel) for process in self.processes_]
        return State(values={"mean": self.mean_, "scale": self.scale_, "kernels": kernels}, arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.low_, model.high_ = (
            check_numbers(state.arrays[name], shape=(columns,), finite=False) for name in ("low", "high")
        )
        used = [read_place(column, columns) for column in state.arrays["columns"].tolist()]
        model.columns_ = np.array(used, dtype=np.intp)
        model.mean_, model.scale_ = read_number(state.values["mean"]), read_number(state.values["scale"])
        kernels = [from_record(Kernel, record) for record in state.values["kernels"]]
        if not 1 <= len(kernels) <= _MOST_KERNELS:
            raise ValueError(f"{len(kernels)} Gaussian processes")
        model.processes_ = [
            _read_process(kernel, {name: state.arrays[f"{name}{place}"] for name in _ARRAYS}, len(used))
            for place, kernel in enumerate(kernels)
        ]
        return model


def _read_process(kernel: Kernel, arrays: dict[str, NDArray[Any]], columns: int) -> Process:
    kernel.check(columns)
    rows, known = len(arrays["rows"]), len(arrays["whitening"])
    if not known <= rows <= _MOST_ROWS:
        raise ValueError(f"a Gaussian process of {rows:,} rows")
    check_numbers(arrays["theta"], shape=(len(kernel.names) + 1,))
    check_numbers(arrays["alpha"], shape=(rows,), finite=False)
    check_numbers(arrays["whitening"], shape=(known, known), finite=False)
    if columns:
        check_numbers(arrays["rows"], shape=(rows, columns), finite=False)
    elif arrays["rows"].shape != (rows, 0):
        raise ValueError(f"rows of shape {arrays['rows'].shape} instead of ({rows}, 0)")
    return Process(kernel=kernel, **arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    X: Floats
    target: Floats
    weight: Floats

    def take(self, rows: slice) -> "_Rows":
        return _Rows(X=self.X[rows], target=self.target[rows], weight=self.weight[rows])

    def weighed(self, trust: Floats) -> "_Rows":
        return _Rows(X=self.X, target=self.target, weight=self.weight * trust)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The most probable hyperparameters; the last one is the noise's logarithm."""

    kernel: Kernel
    expected: Floats
    spread: Floats
    steps: int
    seed: int

    def start(self, rows: _Rows) -> Floats:
        theta = self.expected.copy()
        theta[-1] = max(theta[-1], -3.0)
        directions = [index for index, name in enumerate(self.kernel.names) if name == "direction"]
        if directions:
            theta[directions] = self._directions(rows)
        return theta

    def _directions(self, rows: _Rows) -> Floats:
        """The first follows the power law that is best in logs, the others are drawn."""
        Z = self.kernel.read(rows.X)[:, [axis.smooth for axis in self.kernel.axes]]
        count = Z.shape[1]
        ridge = np.vstack([Z, np.eye(count)])
        law = np.linalg.lstsq(ridge, np.append(rows.target, np.zeros(count)), rcond=None)[0]
        drawn = np.random.default_rng(self.seed).normal(scale=0.3, size=(self.kernel.projections - 1, count))
        return np.concatenate([0.5 * law / max(float(np.linalg.norm(law)), SMALLEST), drawn.ravel()])

    def find(self, rows: _Rows, start: Floats) -> Floats:
        from scipy.optimize import minimize

        pairs = self.kernel.own_pairs(self.kernel.read(rows.X))
        bounds = [(-6.0, 4.0)] * (len(start) - 1) + [(_QUIETEST, 1.0)]
        found = minimize(
            self._loss,
            np.clip(start, [low for low, _ in bounds], [high for _, high in bounds]),
            args=(pairs, rows),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": self.steps},
        )
        return np.asarray(found.x)

    def _loss(self, theta: Floats, pairs: Pairs, rows: _Rows) -> tuple[float, Floats]:
        """How improbable the hyperparameters are given the rows, and the gradient of that."""
        from scipy.linalg import cho_solve, lapack

        lower, gradient = self.kernel.with_gradient(pairs, theta[:-1])
        noise = np.exp(2 * theta[-1]) / rows.weight
        triangle = np.tril_indices(len(noise))
        K = np.zeros((len(noise), len(noise)))
        K[triangle] = lower
        factor, failed = lapack.dpotrf(_observed(K, noise), lower=1)
        off = (theta - self.expected) / self.spread
        if failed:
            return 1e10 + float(off @ off), np.asarray(off / self.spread)
        alpha = cho_solve((factor, True), rows.target)
        inverse, _ = lapack.dpotri(factor, lower=1)
        loss = 0.5 * rows.target @ alpha + np.log(np.diag(factor)).sum() + 0.5 * off @ off
        weight = inverse - np.outer(alpha, alpha)
        on_diagonal = 0.5 * np.diag(weight)
        np.fill_diagonal(weight, on_diagonal)  # every other pair stands for itself and its mirror image
        slope = np.append(gradient.contract(weight[triangle]), 2 * on_diagonal @ noise)
        return float(loss), slope + off / self.spread


def _observed(K: Floats, noise: Floats) -> Floats:
    observed = K + _MEAN_VARIANCE
    observed[np.diag_indices(len(K))] += noise + _JITTER
    return observed


def _covary(kernel: Kernel, rows: _Rows, theta: Floats) -> Floats:
    Z = kernel.read(rows.X)
    return kernel.covariance(Z, Z, theta[:-1])


def _factorise(K: Floats, rows: _Rows, theta: Floats) -> Floats:
    from scipy.linalg import cho_factor

    return np.tril(cho_factor(_observed(K, np.exp(2 * theta[-1]) / rows.weight), lower=True)[0])


def _find_trust(K: Floats, rows: _Rows, theta: Floats) -> Floats:
    """Less than one for rows that the others would not have believed."""
    from scipy.linalg import cho_solve, lapack

    factor = _factorise(K, rows, theta)
    inverse, _ = lapack.dpotri(factor, lower=1)
    surprise = cho_solve((factor, True), rows.target) / np.sqrt(np.diag(inverse))
    return np.asarray(np.minimum(1.0, (_HEAVY_TAIL + 1) / (_HEAVY_TAIL + surprise**2)))


def _merge_repeats(X: Floats, target: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """One row a configuration: the weighted mean of its logarithms, and the sum of its weights."""
    unique, index = np.unique(X, axis=0, return_inverse=True)
    if len(unique) == len(X):
        return X, target, weight
    total = np.bincount(index, weight)
    return unique, np.bincount(index, weight * target) / total, np.asarray(total, dtype=float)
