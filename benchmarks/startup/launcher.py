"""Runs commands in turns and prints what each took: a small process, with the standard library alone.

Linux counts the memory of the process that starts a command as the command's own until it is replaced. So commands are
not started by a benchmark that has loaded large libraries, but from here. Reads ``{"commands": {name: words},
"repeats": n, "directory": path, "environment": {...}}`` from standard input.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO


def main() -> None:
    task = json.load(sys.stdin)
    os.chdir(task["directory"])
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in task["commands"]}
    for repeat in range(task["repeats"] + 1):
        for name, words in task["commands"].items():
            measured = _run(words, task["environment"])
            if repeat:  # the first time writes bytecode and fills caches
                figures[name].append(measured)
    json.dump(figures, sys.stdout)


def _run(words: list[str], environment: Mapping[str, str]) -> dict[str, float]:
    with open("launched.txt", "w") as output:  # noqa: PTH123 (pathlib would be one more import)
        started = time.perf_counter()
        process = os.posix_spawn(words[0], words, environment, file_actions=_send_output_to(output))
        _, status, usage = os.wait4(process, 0)
        elapsed_s = time.perf_counter() - started
    if status:
        with open("launched.txt") as output:  # noqa: PTH123
            sys.exit(f"{' '.join(words)} failed:\n{output.read()[-3000:]}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return {"elapsed_s": elapsed_s, "cpu_s": cpu_s, "peak_memory_bytes": usage.ru_maxrss * 1024}


def _send_output_to(file: TextIO) -> list[tuple[int, int, int]]:
    return [(os.POSIX_SPAWN_DUP2, file.fileno(), stream) for stream in (1, 2)]


if __name__ == "__main__":
    main()
