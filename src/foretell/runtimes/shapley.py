"""Shapley values: a difference shared out among the values that changed."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Worth: TypeAlias = Callable[[NDArray[np.bool_]], Floats]  # of coalitions (rows; a column for each player)

_MOST_EXACT = 8  # players
_ORDERS = 256  # sampled where there are more


def share_out(worth: Worth, players: int) -> Floats:
    """The Shapley value of each player, a row each, for every column of the worth."""
    if players == 0:
        return np.zeros((0, 1))
    return _share_exactly(worth, players) if players <= _MOST_EXACT else _share_by_sample(worth, players)


def _share_exactly(worth: Worth, players: int) -> Floats:
    codes = np.arange(2**players)
    masks = (codes[:, None] >> np.arange(players)) & 1 == 1
    values, sizes = worth(masks), masks.sum(axis=1)
    weights = np.array([1 / (players * math.comb(players - 1, size)) for size in range(players)])
    shares = []
    for player in range(players):
        without = codes[~masks[:, player]]
        gained = values[without | (1 << player)] - values[without]
        shares.append(weights[sizes[without]] @ gained)
    return np.array(shares)


def _share_by_sample(worth: Worth, players: int) -> Floats:
    draw = np.random.default_rng(0)
    orders = np.array([draw.permutation(players) for _ in range(_ORDERS)])
    ranks = np.argsort(orders, axis=1)
    masks = ranks[:, None, :] < np.arange(players + 1)[None, :, None]
    flat, back = np.unique(masks.reshape(-1, players), axis=0, return_inverse=True)
    values = worth(flat)[back.reshape(-1)].reshape(_ORDERS, players + 1, -1)
    gained = np.diff(values, axis=1)
    return np.array([gained[np.arange(_ORDERS), ranks[:, player]].mean(axis=0) for player in range(players)])
