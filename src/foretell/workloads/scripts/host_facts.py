"""What a script uses of the host: its memory, as Linux counts it and unknown elsewhere, and batches that it loads."""

import contextlib
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES, _PRESENT = 8, 63  # https://docs.kernel.org/admin-guide/mm/pagemap.html


def read_resident_bytes() -> int | None:
    """Memory that this process occupies. What is backed by nothing until it is written does not count."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return None


def read_own_bytes(pid: int) -> int | None:
    """Memory that only this process has: not what it shares with the process that it was forked from, nor batches."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        found = {name: int(size) * 1024 for name, size in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)}
        if "Private_Dirty" in found and "Pss_Shmem" in found:
            return max(0, found["Private_Dirty"] - found["Pss_Shmem"])
    return None


def is_resident(tensor: torch.Tensor) -> bool:
    """Whether memory has been given to a tensor, judged by its middle."""
    page = (tensor.data_ptr() + tensor.untyped_storage().nbytes() // 2) // _PAGE
    with contextlib.suppress(OSError), Path("/proc/self/pagemap").open("rb") as file:
        file.seek(page * _ENTRY_BYTES)
        return bool(int.from_bytes(file.read(_ENTRY_BYTES), "little") >> _PRESENT)
    return True


def measure_batch(batch: Any) -> int | None:
    """Bytes of the tensors of a batch."""
    sizes = [each.numel() * each.element_size() for each in _list_tensors(batch)]
    return sum(sizes) if sizes else None


def _list_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _list_tensors(each)
    elif isinstance(value, Mapping):  # also those of libraries, such as the batches of transformers
        for each in value.values():
            yield from _list_tensors(each)


def find_batch_size(loader: object) -> int | None:
    """Examples of a batch, as a loader or its sampler says."""
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def find_usual_s(times: Sequence[float]) -> float | None:
    """The median; the first batch also opens files."""
    later = times[1:] or times
    return statistics.median(later) if later else None
