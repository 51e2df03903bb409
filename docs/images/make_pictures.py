"""Makes the README's pictures from what commands really print.

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
_WIDTH = 100
_RECOMMEND = (
    "foretell recommend fcnet --site osc --max-time 10m --set dataset=cifar --set samples=15000"
    " --set hidden=200 --set batch_size=96 --set epochs=14"
)
_WORKLOAD = (
    "foretell workload predict torch.nn:Transformer --set batch_first=true --input 64,512,512 --input 64,512,512"
    " --loss mse --device H100,B200,A100,RTX4090,L40S,MI300X,T4 --precision bf16"
)
_ADVISE = (
    "foretell advise torch.nn:Transformer --set batch_first=true --input 256,128,512 --input 256,128,512 --loss mse"
    " --precision fp16 --optimizer adamw --epochs 20 --samples 4500000 --site osc --max-time 24h --max-cost 5"
)
_PLAIN_SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # no font from the internet


def main() -> None:
    if len(sys.argv) > 1:
        _draw_all(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(_EXAMPLE, Path(name, "fcnet"), ignore=shutil.ignore_patterns(".foretell")))
        _run("foretell generate", folder)
        _run("foretell build", folder)
        _draw_all(folder)


def _draw_all(folder: Path) -> None:
    _draw(_RECOMMEND, folder, name="recommend")
    _draw(_WORKLOAD, folder, name="workload")
    _draw(_ADVISE, folder, name="advise")


def _draw(command: str, folder: Path, *, name: str) -> None:
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}"), style="bold")
    console.print(Text.from_ansi(_run(command, folder)))
    title = command.partition(" -")[0]
    picture = console.export_svg(title=title, code_format=_PLAIN_SVG, unique_id=name)
    (_HERE / f"{name}.svg").write_text(picture, "utf-8")


def _run(command: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": str(_WIDTH), "FORCE_COLOR": "1"}
    done = subprocess.run(
        command.split(), cwd=folder, env=environment, check=True, text=True, encoding="utf-8", stdout=subprocess.PIPE
    )
    return done.stdout


if __name__ == "__main__":
    main()
