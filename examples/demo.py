"""The main job end to end, as `make demo` runs it: from an app file to a recommendation, and then the proof.

Every line after a ``$`` is a command you can type yourself in examples/fcnet. Interrupt it whenever you like; it goes
on where it was.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent / "fcnet"
QUESTION = "--set dataset=cifar --set samples=14000 --set hidden=192 --set batch_size=64 --set epochs=14"
STEPS = {
    "What the app file says": "foretell check",
    "Measure it scaled down and full scale (about a minute)": "foretell generate",
    "Learn from the runs, and judge what was learned": "foretell build --rows 5",
    "A configuration nobody has run: what will it need?": f"foretell predict {QUESTION}",
    "What would a cluster charge for it?": f"foretell recommend {QUESTION} --site osc --max-time 1h --rows 5",
    "What to ask for here": f"foretell recommend {QUESTION}",
    "The proof: run what was recommended, and compare": f"foretell verify {QUESTION}",
    "All of it on one page": "foretell report",
}


def main() -> None:
    beside = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for title, command in STEPS.items():
        print(f"\n\033[1m{title}\033[0m\n$ {command}", flush=True)
        outcome = subprocess.run(shlex.split(command), cwd=EXAMPLE, env=environment, check=False)
        if outcome.returncode:
            sys.exit(f"'{command}' ended with exit code {outcome.returncode}; see its message above")


if __name__ == "__main__":
    main()
