"""Times how long one worker of a script's loader takes for a batch, after the step was recorded."""

import _thread
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind

from foretell.workloads.scripts.host_facts import find_usual_s

LONGEST_S = 3.0  # that the script is kept for it
_BATCHES = 6  # at most; the first one may open files
_BUDGET_S = 1.5  # after which no further batch begins


def measure_load(loader: Any, *, longest_s: float = LONGEST_S) -> float | None:
    """The seconds of a batch, as the median of a few; None if the loader gives none in time, or fails.

    In a thread that is left where a batch takes too long, without the modes in which the script runs.
    """
    if not isinstance(loader, DataLoader):
        return None
    times: list[float] = []
    done = threading.Event()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker
    try:
        _thread.start_new_thread(_load, (loader, times, done))
        done.wait(longest_s)
    finally:
        torch.set_num_threads(threads)
    return find_usual_s(times)


def _load(loader: DataLoader[Any], times: list[float], done: threading.Event) -> None:
    try:
        begin = time.perf_counter()
        for seconds in _time_batches(loader):
            times.append(seconds)
            if len(times) == _BATCHES or time.perf_counter() - begin > _BUDGET_S:
                return
    except Exception:  # the data set cannot be read again, or not in another thread: then it is not known
        return
    finally:
        done.set()


def _time_batches(loader: DataLoader[Any]) -> Iterator[float]:
    kind, own = loader._dataset_kind, loader._auto_collation
    create: Any = _DatasetKind.create_fetcher
    fetcher = create(kind, loader.dataset, own, loader.collate_fn, loader.drop_last)
    for index in loader._index_sampler:
        begin = time.perf_counter()
        fetcher.fetch(index)
        yield time.perf_counter() - begin
