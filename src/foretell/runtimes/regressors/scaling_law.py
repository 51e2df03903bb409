"""Scaling laws: a sum of products of powers of the columns, found by search."""

from collections.abc import Iterable
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import check_numbers, read_number, read_place
from foretell.runtimes.regressors._base import SMALLEST, Floats, RunRegressor, State, weighted_median

Term: TypeAlias = tuple[tuple[int, float], ...]  # ((column, exponent), …), sorted by column; () is the constant
Terms: TypeAlias = tuple[Term, ...]

_EXPONENTS = (-1.0, -0.5, 0.5, 1.0, 2.0)
# What an exponent costs in units of the criterion: most costs grow in proportion, few with a square.
_SURPRISE = {1.0: 0.5, 0.5: 2.0, 1.5: 3.0, 2.0: 3.0}
_MOST_SURPRISE = 3.0
_STEEPEST = 3.0
_LEAST_TO_TURN = 5  # values of a column, for a law that falls with it and then rises
_SCREENED = 16  # candidate terms that are fitted exactly, after a cheap screening
_SEARCH_ROWS = 600  # the form of a law needs no more; its coefficients are fitted to all rows
_NNLS_STEPS = 200
_OUTLIER = 4.0  # in robust standard deviations


class ScalingLawRegressor(RunRegressor):
    """``y = sum of c * x1**p1 * x2**p2 …`` with ``c >= 0``, fitted to relative errors.

    Terms are grown one at a time (a new one, or a factor on an old one) while the Bayesian information criterion
    falls, and dropped again where it falls without them. Costs add up and do not cancel: coefficients are not
    negative, so the law stays sane far outside the rows it has seen.
    """

    complexity = 2

    scale_: Floats
    terms_: Terms

    def __init__(self, max_terms: int = 6) -> None:
        self.max_terms = max_terms

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self._fit_form(X, y, weight, None)

    def _fit_like(self, like: Self, X: Floats, y: Floats, weight: Floats) -> None:
        self._fit_form(X, y, weight, like if len(y) > _SEARCH_ROWS // 2 else None)

    def _fit_form(self, X: Floats, y: Floats, weight: Floats, like: Self | None) -> None:
        target = np.maximum(y, SMALLEST)
        self.scale_ = _column_scale(X) if like is None else like.scale_
        self.floor_ = np.where(X.min(axis=0) > 0, X.min(axis=0) * 1e-3, 0.0)
        self.terms_ = self._find_terms(X, target, weight) if like is None else like.terms_
        whole = _Search(X / self.scale_, target, weight, max_terms=self.max_terms)
        keep = whole.inliers(self.terms_)
        if not keep.all():
            whole = _Search(X[keep] / self.scale_, target[keep], weight[keep], max_terms=self.max_terms)
        coefficients = whole.solve(self.terms_)
        fitted = build_design(X[keep] / self.scale_, self.terms_) @ coefficients
        # Least squares of relative errors sits low under noise; half of the runs should take longer, half less.
        self.coefficients_ = coefficients * weighted_median(target[keep] / np.maximum(fitted, SMALLEST), weight[keep])

    def _find_terms(self, X: Floats, y: Floats, weight: Floats) -> Terms:
        rows = np.linspace(0, len(y) - 1, min(len(y), _SEARCH_ROWS)).astype(int)
        return _Search(X[rows] / self.scale_, y[rows], weight[rows], max_terms=self.max_terms).find()

    def _predict(self, X: Floats) -> Any:
        scaled = np.maximum(X, self.floor_) / self.scale_
        return build_design(scaled, self.terms_) @ self.coefficients_

    def to_state(self) -> State:
        arrays = {"scale": self.scale_, "floor": self.floor_, "coefficients": self.coefficients_}
        return State(values={"terms": self.terms_}, arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.scale_, model.floor_ = (
            check_numbers(state.arrays[name], shape=(columns,), finite=False) for name in ("scale", "floor")
        )
        model.terms_ = tuple(_read_term(term, columns) for term in state.values["terms"])
        count = (len(model.terms_),)
        model.coefficients_ = check_numbers(state.arrays["coefficients"], shape=count, finite=False)
        return model


def _read_term(term: Iterable[tuple[Any, Any]], columns: int) -> Term:
    return tuple((read_place(column, columns), read_number(exponent)) for column, exponent in term)


def build_design(X: Floats, terms: Iterable[Term]) -> Floats:
    """One column a term."""
    return np.column_stack([_product(X, term) for term in terms])


def _product(X: Floats, term: Term) -> Floats:
    value = np.ones(len(X))
    for column, exponent in term:
        value = value * _power(X[:, column], exponent)
    return value


def _power(x: Floats, exponent: float) -> Floats:
    if exponent == 1.0:
        return x
    if exponent == -1.0:
        return 1.0 / x
    return np.asarray(np.abs(x) ** exponent)


def _column_scale(X: Floats) -> Floats:
    middle = np.median(np.abs(X), axis=0)
    return np.where(middle > 0, middle, np.maximum(np.abs(X).max(axis=0), 1.0))


def _free_exponents(terms: Terms) -> set[tuple[int, float]]:
    """The offsets of exponents from multiples of 0.5; terms grown from one another share them."""
    offsets = {(column, round(power % 0.5, 6) % 0.5) for term in terms for column, power in term}
    return {(column, offset) for column, offset in offsets if offset}


class _Search:
    def __init__(self, X: Floats, y: Floats, weight: Floats, max_terms: int) -> None:
        self.X = X
        self.row_scale = np.sqrt(weight) / y  # errors count relative to the target
        self.target = np.sqrt(weight)
        self.log_y = np.log(y)
        self.weight = weight
        self.rows = len(y)
        self.max_terms = max(1, min(max_terms, self.rows // 3))
        self.distinct = [len(np.unique(values)) for values in X.T]
        self.factors = [(column, exponent) for column in range(X.shape[1]) for exponent in self._exponents(column)]
        self._columns: dict[Term, Floats] = {}
        self._criteria: dict[frozenset[Term], float] = {}

    def find(self) -> Terms:
        """The best terms over a few starting points."""
        found = [self._prune(self._grow(start)) for start in self._starts()]
        return min(found, key=self.criterion)

    def solve(self, terms: Terms) -> Floats:
        from scipy.optimize import nnls

        matrix = self._matrix(terms)
        norm = np.maximum(np.linalg.norm(matrix, axis=0), SMALLEST)
        try:
            coefficients, _ = nnls(matrix / norm, self.target, maxiter=_NNLS_STEPS)
        except RuntimeError:  # terms so alike that the solver goes round in circles
            coefficients = np.maximum(np.linalg.lstsq(matrix / norm, self.target, rcond=None)[0], 0.0)
        return np.asarray(coefficients / norm)

    def criterion(self, terms: Terms) -> float:
        """The Bayesian information criterion, with a price for each exponent and for having searched among many."""
        key = frozenset(terms)
        if key not in self._criteria and self._turns(terms):
            self._criteria[key] = np.inf
        if key not in self._criteria:
            loss = float(np.mean((self._matrix(terms) @ self.solve(terms) - self.target) ** 2))
            price = len(terms) * (np.log(self.rows) + np.log1p(len(self.factors)))
            price += sum(_SURPRISE.get(abs(power), _MOST_SURPRISE) for term in terms for _, power in term)
            price += len(_free_exponents(terms)) * np.log(self.rows)
            self._criteria[key] = float(self.rows * np.log(max(loss, 1e-12)) + price)
        return self._criteria[key]

    def _turns(self, terms: Terms) -> bool:
        """Whether it falls and rises with a column of which too few values were measured to show that."""
        powers = [(column, power) for term in terms for column, power in term]
        falls = {column for column, power in powers if power < 0}
        rises = {column: max(power for other, power in powers if other == column) for column in falls}
        return any(power > (0 if self.distinct[column] < _LEAST_TO_TURN else 1) for column, power in rises.items())

    def inliers(self, terms: Terms) -> NDArray[np.bool_]:
        """Rows the law explains about as well as the others; a hung run should not bend it."""
        fitted = np.maximum(self._matrix(terms) @ self.solve(terms), SMALLEST) / np.maximum(self.target, SMALLEST)
        residual = np.log(fitted)
        spread = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
        return np.asarray(np.abs(residual - np.median(residual)) <= max(_OUTLIER * spread, 0.05))

    def _exponents(self, column: int) -> tuple[float, ...]:
        x = self.X[:, column]
        if (x < 0).any():
            return ()
        if np.isin(x, (0.0, x.max())).all():  # a mark: present or not
            return (1.0,)
        return _EXPONENTS if x.min() > 0 else tuple(exponent for exponent in _EXPONENTS if exponent > 0)

    def _starts(self) -> list[Terms]:
        exact = self._log_linear()
        rounded = tuple((column, round(2 * exponent) / 2) for column, exponent in exact)
        rounded = tuple(factor for factor in rounded if factor[1])
        starts = [((),), ((), exact), ((), rounded)]
        return list(dict.fromkeys(tuple(dict.fromkeys(start)) for start in starts))

    def _log_linear(self) -> Term:
        """The single power law that is best in logs."""
        columns = sorted({column for column, exponent in self.factors if self.X[:, column].min() > 0})
        if not columns or self.rows < len(columns) + 2:
            return ()
        root = np.sqrt(self.weight)[:, None]
        design = np.column_stack([np.ones(self.rows), np.log(self.X[:, columns])])
        ridge = 1e-3 * np.sqrt(self.rows) * np.eye(design.shape[1])
        ridge[0, 0] = 0.0
        augmented = np.vstack([design * root, ridge])
        solution = np.linalg.lstsq(augmented, np.append(self.log_y * root[:, 0], np.zeros(len(ridge))), rcond=None)[0]
        powers = np.clip(solution[1:], -_STEEPEST, _STEEPEST)  # within a narrow range noise looks like any power
        return tuple((column, float(p)) for column, p in zip(columns, powers, strict=True) if abs(p) > 0.02)

    def _grow(self, terms: Terms) -> Terms:
        best = self.criterion(terms)
        for _ in range(3 * self.max_terms):
            options = self._screen(terms)
            scored = [(self.criterion(option), option) for option in options]
            if not scored or min(scored)[0] >= best - 1e-9:
                break
            best, terms = min(scored)
        return terms

    def _prune(self, terms: Terms) -> Terms:
        while len(terms) > 1:
            options = [tuple(term for term in terms if term != dropped) for dropped in terms]
            best = min(options, key=self.criterion)
            if self.criterion(best) > self.criterion(terms):
                break
            terms = best
        return terms

    def _screen(self, terms: Terms) -> list[Terms]:
        """The moves (one more term, or another in place of one) that point most along what would be unexplained."""
        coefficients = self.solve(terms)
        residual = self.target - self._matrix(terms) @ coefficients
        options: list[Terms] = []
        if len(terms) < self.max_terms:
            fresh = {grown for term in (*terms, ()) for grown in self._grown(term)} - set(terms)
            options += [(*terms, term) for term in self._promising(fresh, residual, _SCREENED)]
        for term, coefficient in zip(terms, coefficients, strict=True):
            without = residual + coefficient * self._column(term)
            fresh = set(self._grown(term)) - set(terms)
            for new in self._promising(fresh, without, _SCREENED // 4):
                options.append(tuple(new if old == term else old for old in terms))
        return options

    def _promising(self, fresh: set[Term], residual: Floats, most: int) -> list[Term]:
        if not fresh:
            return []
        listed = sorted(fresh)
        columns = self._matrix(tuple(listed))
        promise = columns.T @ residual / np.maximum(np.linalg.norm(columns, axis=0), SMALLEST)
        return [listed[index] for index in np.argsort(-promise, kind="stable")[:most]]

    def _grown(self, term: Term) -> list[Term]:
        taken = dict(term)
        grown = []
        for column, exponent in self.factors:
            total = taken.get(column, 0.0) + exponent
            if abs(total) <= _STEEPEST:
                powers = {**taken, column: total}
                grown.append(tuple(sorted((key, power) for key, power in powers.items() if abs(power) > 1e-9)))
        if term and all(abs(2 * power) <= 3 for power in taken.values()):
            grown.append(tuple((column, 2 * power) for column, power in term))  # from a root of a product to all of it
        return grown

    def _matrix(self, terms: Terms) -> Floats:
        return np.column_stack([self._column(term) for term in terms])

    def _column(self, term: Term) -> Floats:
        if term not in self._columns:
            self._columns[term] = _product(self.X, term) * self.row_scale
        return self._columns[term]
