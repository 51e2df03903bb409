"""The length of a training is read off the loops that scripts have; what they do not show stays unknown."""

from typing import Any

import pytest
from tests.workloads.recorded_scripts import Job, run_scripts

pytest.importorskip("accelerate")

HEAD = """
import argparse, itertools
import torch
from torch.utils.data import DataLoader, TensorDataset

class Settings:
    epochs = 6
    @property
    def dangerous(self):
        raise SystemExit("a property of the script was run")

def bar(items, **_):
    return items

class Args:
    def __init__(self):
        self.epochs, self.max_steps, self.save = 6, 500, True

args, config, settings = Args(), {"epochs": 6, "steps": 500}, Settings()
data = TensorDataset(torch.rand(40, 4), torch.rand(40, 1))
loader = DataLoader(data, batch_size=8)
held = DataLoader(data, batch_size=10)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def take_step(x, y):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()

def train_epoch():
    for x, y in loader:
        take_step(x, y)

def draw():
    return torch.rand(8, 4), torch.rand(8, 1)
"""
EVALUATE = """
@torch.no_grad()
def evaluate(given):
    model.eval()
    for x, y in given:
        model(x)
"""
EPOCHS = "for epoch in range(args.epochs):\n    train_epoch()\n"
# Each body of a script, and the counts that it shows.
SCRIPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bar": (
        "for epoch in bar(range(args.epochs), desc='x'):\n"
        "    for x, y in bar(loader, leave=False):\n        take_step(x, y)",
        {"epochs": 6, "batches": 5, "total_steps": 30, "batch_size": 8, "steps": None},
    ),
    "dictionary": ("for epoch in range(config['epochs']):\n    train_epoch()", {"epochs": 6, "batches": 5}),
    "computed": ("for epoch in range(0, int(args.epochs * 2)):\n    train_epoch()", {"epochs": 12}),
    "pairs": ("for turn, epoch in enumerate(range(1, 7)):\n    train_epoch()", {"epochs": 6}),
    "property": ("for epoch in range(getattr(settings, 'epochs')):\n    train_epoch()", {"epochs": None}),
    "nameless": ("for _ in range(3):\n    for x, y in loader:\n        take_step(x, y)", {"epochs": 3, "batches": 5}),
    "accelerated": (
        "from accelerate import Accelerator\nown = Accelerator().prepare(loader)\n"
        "for _ in range(3):\n    for x, y in own:\n        take_step(x, y)",
        {"epochs": 3, "batches": 5},
    ),
    "while_steps": (
        "step = 0\nwhile step < args.max_steps:\n    take_step(*draw())\n    step += 1",
        {"steps": 500, "total_steps": 500, "epochs": None},
    ),
    "while_epochs": ("epoch = 1\nwhile epoch <= args.epochs:\n    train_epoch()\n    epoch += 1", {"epochs": 6}),
    "counted_before": ("step = 0\nwhile step < 500:\n    step += 1\n    take_step(*draw())", {"steps": 500}),
    "endless": (
        "iter_num = 0\nwhile True:\n    take_step(*draw())\n    iter_num += 1\n    if iter_num > 99:\n        break",
        {"steps": 100},
    ),
    "limited_epochs": (
        "step = 0\nfor epoch in range(1000):\n    for x, y in loader:\n        take_step(x, y)\n        step += 1\n"
        "        if step >= args.max_steps:\n            break",
        {"steps": 500, "total_steps": 500, "epochs": 1000},
    ),
    "limited_batches": (
        "for epoch in range(4):\n    for step, (x, y) in enumerate(loader):\n        if step >= 3:\n            break\n"
        "        take_step(x, y)",
        {"steps": None, "epochs": 4, "batches": 3, "total_steps": 12},
    ),
    "steps_of_an_epoch": (
        "for epoch in range(4):\n    for step in range(25):\n        take_step(*draw())",
        {"epochs": 4, "batches": 25, "total_steps": 100},
    ),
    "list_of_batches": (
        "batches = [draw() for _ in range(7)]\nfor epoch in range(2):\n"
        "    for x, y in batches:\n        take_step(x, y)",
        {"epochs": 2, "batches": 7, "total_steps": 14},
    ),
    "unknown": (
        "import random\nfor x, y in iter(lambda: draw(), None):\n    take_step(x, y)",
        {"epochs": None, "steps": None, "total_steps": None},
    ),
    "evaluates": (EVALUATE + EPOCHS + "    evaluate(held)\n", {"evaluation_batches": 4.0, "saves_per_epoch": 0.0}),
    "evaluates_here": (
        EPOCHS + "    model.eval()\n    with torch.no_grad():\n        for x, y in held:\n"
        "            model(x)\n    model.train()",
        {"evaluation_batches": 4.0},
    ),
    "every_second": (
        EVALUATE + EPOCHS + "    if epoch % 2 == 0:\n        evaluate(held)\n        torch.save(model, 'x.pt')\n",
        {"evaluation_batches": 2.0, "saves_per_epoch": 0.5},
    ),
    "sometimes": (
        EVALUATE + "best = 0\n" + EPOCHS + "    if best < epoch:\n        evaluate(held)\n"
        "        torch.save(model, 'x.pt')\n",
        {"evaluation_batches": None, "saves_per_epoch": None},
    ),
    "hidden": (EPOCHS + "    validate_elsewhere(model)\n", {"evaluation_batches": None, "saves_per_epoch": 0.0}),
    "saves": (
        EPOCHS + "    if args.save:\n        torch.save(model, 'x.pt')\n",
        {"saves_per_epoch": 1.0, "evaluation_batches": 0.0},
    ),
    "phases": (
        "for epoch in range(6):\n    for phase in ['train', 'val']:\n"
        "        for x, y in loader:\n            take_step(x, y)",
        {"epochs": 6, "evaluation_batches": None},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("counts")
    (folder / "code").mkdir()
    paths = {}
    for name, (body, _) in SCRIPTS.items():
        path = folder / "code" / f"{name}.py"
        path.write_text(HEAD + body + "\n", encoding="utf-8")
        paths[name] = str(path)
    return run_scripts("record", folder, paths)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_counts_are_those_of_the_loops(recorded: dict[str, Job], name: str) -> None:
    facts = recorded[name].load(name).facts
    wanted = SCRIPTS[name][1]
    assert {key: getattr(facts, key) for key in wanted} == wanted


@pytest.mark.slow
def test_loading_is_timed_where_there_is_a_loader(recorded: dict[str, Job]) -> None:
    assert recorded["while_steps"].load("x").facts.load_s is None
    seconds = recorded["nameless"].load("x").facts.load_s
    assert seconds is not None
    assert seconds > 0
