"""The main job end to end, as `make demo` runs it: from an app file to a recommendation and its check.

Every line after a ``$`` is a command you can type yourself in examples/fcnet. After an interruption the demo resumes.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent / "fcnet"
CONFIGURATION = "--set dataset=cifar --set samples=14000 --set hidden=192 --set batch_size=64 --set epochs=14"
STEPS = {
    "Check the app file": "foretell check",
    "Run it scaled down and at full scale (about a minute)": "foretell generate",
    "Fit models to the runs, and evaluate them": "foretell build --rows 5",
    "Predict a new configuration": f"foretell predict {CONFIGURATION}",
    "Recommend a request at a cluster": f"foretell recommend {CONFIGURATION} --site osc --max-time 1h --rows 5",
    "Recommend a request for this machine": f"foretell recommend {CONFIGURATION}",
    "Run the recommended job: predicted against measured": f"foretell verify {CONFIGURATION}",
    "Write everything to one page": "foretell report",
}


def main() -> None:
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for title, command in STEPS.items():
        print(f"\n\033[1m{title}\033[0m\n$ {command}", flush=True)
        outcome = subprocess.run(shlex.split(command), cwd=EXAMPLE, env=environment, check=False)
        if outcome.returncode:
            sys.exit(f"'{command}' ended with exit code {outcome.returncode}; see its message above")


if __name__ == "__main__":
    main()
