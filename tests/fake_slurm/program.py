#!/usr/bin/env -S python3 -IS
"""Every program of the fake Slurm, by the name it is called; it stays light, because tests call it all the time."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))

from tests.fake_slurm.state import RefusalError


def main(name: str, words: list[str]) -> None:
    module = __import__(f"tests.fake_slurm.{name}", fromlist=["main"])
    try:
        module.main(words)
    except RefusalError as exc:
        sys.stderr.write(f"{exc}\n")
        sys.stderr.flush()
        os._exit(exc.code)
    sys.stdout.flush()
    # Nothing needs tidying up, and this is quicker.
    os._exit(0)


if __name__ == "__main__":
    main(os.path.basename(sys.argv[0]), sys.argv[1:])
