"""Made-up histories of any length: runs of a law we chose, with noise."""

import itertools
import random
from collections.abc import Iterator

from foretell.core.app import App, Domain, Parameter, ParameterType, Scale
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage

APP = App(
    name="made-up",
    command=("simulate", "{steps}", "{size}", "{method}"),
    parameters=(
        Parameter(name="steps", type=ParameterType.INTEGER),
        Parameter(name="size", type=ParameterType.INTEGER),
        Parameter(name="method", type=ParameterType.TEXT, full_scale=Domain(values=("explicit", "implicit"))),
    ),
)
MACHINE = Machine(hostname="made-up", cpu_model="made-up", cores=64, cpu_mhz=2000.0, memory_bytes=2**38)


def make_runs(count: int, *, seed: int = 0) -> Iterator[Run]:
    """Runs with time and memory from a law, times noise."""
    draw = random.Random(seed)
    for number in itertools.islice(itertools.count(), count):
        full_scale = number % 3 == 0
        steps = draw.randint(100, 1000) * (10 if full_scale else 1)
        size = draw.choice((64, 128, 256, 512))
        method, cores = draw.choice(("explicit", "implicit")), draw.choice((1, 2, 4, 8, 16))
        work = steps * size**2 * (3 if method == "implicit" else 1)
        spec = RunSpec(
            app=APP.name,
            parameters={"steps": steps, "size": size, "method": method},
            allocation=Allocation(cores=cores),
            scale=Scale.FULL_SCALE if full_scale else Scale.SCALED_DOWN,
            repetition=number,
        )
        usage = Usage(
            elapsed_s=(1 + 1e-6 * work * (0.1 + 0.9 / cores)) * draw.lognormvariate(0, 0.05),
            peak_memory_bytes=int((5e7 + 80 * size**2 * cores) * draw.lognormvariate(0, 0.02)),
        )
        yield Run(spec=spec, state=State.COMPLETED, usage=usage, machine=MACHINE)
