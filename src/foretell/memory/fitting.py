"""Finds the largest size, such as a batch or a length, whose memory fits."""

from collections.abc import Callable

LARGEST = 2**20  # examples or tokens, beyond which nobody asks


def find_largest(find_risk: Callable[[int], float], *, allowed: float, start: int) -> int:
    """The largest size whose risk is at most the allowed one, 0 if there is none. The risk grows with the size."""
    low, high = 0, max(1, start)
    while high <= LARGEST and find_risk(high) <= allowed:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if find_risk(middle) <= allowed:
            low = middle
        else:
            high = middle
    return min(low, LARGEST)
