"""The load of other processes while a job is sampled."""

import os
import subprocess
import sys

from foretell.measure.counters import LoadWatch
from foretell.measure.procfs import find_stat

CHILD = "import time\nwhile time.process_time() < 0.5: pass"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-I", "-S", "-c", {CHILD!r}])
print(flush=True)
input()
"""


def test_cpu_time_belongs_to_the_process_that_used_it() -> None:
    words = (sys.executable, "-I", "-S", "-c", PARENT)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # its child has ended
        watch, stat = LoadWatch.start(os.sched_getaffinity(0)), find_stat(parent.pid)
        parent.communicate(b"\n")
    assert stat is not None
    assert stat.cpu_s >= 0.45
    assert watch.processes[parent.pid] < 0.4
