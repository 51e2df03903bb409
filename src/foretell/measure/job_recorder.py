"""Records the usage of a job in its run directory, while it runs and when it has ended."""

import contextlib
import os
import threading
import time
from pathlib import Path

from foretell.core.run import Machine, Usage
from foretell.core.run_environment import RUN_DIRECTORY, SAMPLE
from foretell.measure.child_process import Child
from foretell.measure.gpus import find_gpus
from foretell.measure.job_sample import Sample, Series, write_sample
from foretell.measure.machine import detect_machine
from foretell.measure.process_tree import TreeProbe

_FIRST_RECORD_S, _LONGEST_BETWEEN_S = 1.0, 60.0
_PATIENCE_S = 10.0  # for the description of the node, when the command has ended
_BETWEEN = 0.25  # share of the elapsed time: a killed job loses no larger share of its end if it is short


class JobRecorder(TreeProbe):
    """Measures a command's process tree and writes a :class:`Sample` of it to the run's directory."""

    def __init__(self, child: Child) -> None:
        super().__init__(child.follow)
        self._child = child
        self._directory = Path(os.environ.get(RUN_DIRECTORY, "."))
        self._memory, self._gpus_over_time = Series(), Series()
        self._next_s = _FIRST_RECORD_S
        self._warned = False
        self._machine = Machine()
        self._asking = threading.Thread(target=self._ask, daemon=True)  # GPU drivers may take seconds to respond

    def _ask(self) -> None:
        self._gpus = find_gpus()
        self._machine = detect_machine()

    def record(self) -> None:
        """Sample the command to its end, and write the final record.

        Raises:
            OSError: if the record cannot be written.
        """
        with contextlib.suppress(OSError):
            (self._directory / SAMPLE).unlink(missing_ok=True)  # of the same run, before it was requeued
        self._asking.start()
        usage = self.wait().usage
        self._asking.join(_PATIENCE_S)
        self._write(usage)

    def _sample(self) -> None:
        super()._sample()
        if self.memory_bytes:  # no memory is left of a process that has ended
            self._memory.add(self.elapsed_s, self.memory_bytes)
        if self.gpu is not None:
            self._gpus_over_time.add(self.elapsed_s, self.gpu.utilisation, self.gpu.memory_bytes)

    def _after_sample(self) -> None:
        if self.elapsed_s < self._next_s and self._child.warned == self._warned:
            return
        self._warned = self._child.warned
        with contextlib.suppress(OSError):  # the disk may have space again at the end
            self._write(self.usage)
        self._next_s = self.elapsed_s + min(max(_BETWEEN * self.elapsed_s, _FIRST_RECORD_S), _LONGEST_BETWEEN_S)

    def _write(self, usage: Usage) -> None:
        sample = Sample(
            usage=usage,
            machine=self._machine,
            memory=self._memory.points,
            gpus=self._gpus_over_time.points,
            sampler_cpu_s=time.process_time(),
        )
        write_sample(self._directory, sample)
