"""Makes the README's picture from what `foretell recommend` really prints.

python docs/images/make_pictures.py            makes the example's runs first: two to three minutes
python docs/images/make_pictures.py FOLDER     uses the example's runs in that folder
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

_HERE = Path(__file__).parent
_EXAMPLE = _HERE.parents[1] / "examples" / "fcnet"
_WIDTH = 92
_RECOMMEND = (
    "foretell recommend fcnet --site osc --max-time 10m --set dataset=cifar --set samples=15000"
    " --set hidden=200 --set batch_size=96 --set epochs=14"
)
_PLAIN_SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # no font from the internet


def main() -> None:
    if len(sys.argv) > 1:
        _draw(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(_EXAMPLE, Path(name, "fcnet"), ignore=shutil.ignore_patterns(".foretell")))
        _run("foretell generate", folder)
        _run("foretell build", folder)
        _draw(folder)


def _draw(folder: Path) -> None:
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {_RECOMMEND}"), style="bold")
    console.print(Text.from_ansi(_run(_RECOMMEND, folder)))
    picture = console.export_svg(title="foretell recommend", code_format=_PLAIN_SVG, unique_id="recommend")
    (_HERE / "recommend.svg").write_text(picture, "utf-8")


def _run(command: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": str(_WIDTH), "FORCE_COLOR": "1"}
    done = subprocess.run(
        command.split(), cwd=folder, env=environment, check=True, text=True, encoding="utf-8", stdout=subprocess.PIPE
    )
    return done.stdout


if __name__ == "__main__":
    main()
