"""Which runs of the programs are learned from, and which are asked for: between and beyond the measured values."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Configuration = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A grid of scaled-down runs, a smaller one of full-scale runs, and new full-scale configurations."""

    program: str
    small: Mapping[str, Sequence[Any]]
    full: Mapping[str, Sequence[Any]]
    asked: Sequence[tuple[Any, ...]]
    repeats: int = 1
    held_out: bool = False  # written and measured after the models were fixed: nothing was chosen by it
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.small))

    def runs(self) -> Iterator[tuple[str, Configuration]]:
        """Each configuration with its role: SD and FS are used to fit, ASK is predicted."""
        for scale, grid in (("SD", self.small), ("FS", self.full)):
            for values in itertools.product(*grid.values()):
                for _ in range(self.repeats):
                    yield scale, dict(zip(grid, values, strict=True))
        for values in self.asked:
            yield "ASK", dict(zip(self.names, values, strict=True))


SWEEPS = (
    Sweep(
        program="training",
        small={"width": [64, 128, 256], "batch": [32, 128], "steps": [20, 40, 80]},
        full={"width": [256, 512], "batch": [128, 256], "steps": [150, 300]},
        asked=[
            (384, 128, 300),
            (512, 192, 225),
            (192, 256, 300),
            (512, 256, 600),
            (768, 128, 300),
            (1024, 256, 200),
            (320, 512, 200),
            (256, 64, 1000),
        ],
    ),
    Sweep(
        program="attention",
        small={"length": [256, 512, 1024], "heads": [2, 4], "algorithm": ["whole", "blocks"]},
        full={"length": [2048, 3072], "heads": [4, 8], "algorithm": ["whole", "blocks"]},
        repeats=2,
        asked=[
            (1536, 4, "whole"),
            (2500, 8, "whole"),
            (2500, 8, "blocks"),
            (4096, 8, "whole"),
            (4096, 8, "blocks"),
            (3072, 6, "whole"),
            (6000, 4, "blocks"),
            (5000, 4, "whole"),
            (3072, 16, "blocks"),
        ],
    ),
    Sweep(
        program="walksat",
        small={"variables": [50, 100, 150], "ratio": [3.0, 3.5, 4.0], "flips": [500, 1000, 2000]},
        full={"variables": [200, 300], "ratio": [3.5, 4.2], "flips": [2000, 5000]},
        asked=[
            (250, 4.0, 5000),
            (300, 3.8, 3500),
            (250, 4.2, 2500),
            (400, 4.2, 5000),
            (300, 4.2, 10000),
            (350, 3.6, 8000),
            (225, 3.5, 4000),
            (500, 4.0, 5000),
        ],
    ),
    Sweep(
        program="sort",
        small={"lines": [20000, 50000, 100000, 200000], "length": [10, 40], "buffer_mb": [1, 4, 64]},
        full={"lines": [500000, 1000000], "length": [40, 80], "buffer_mb": [4, 64]},
        asked=[
            (700000, 40, 4),
            (700000, 60, 64),
            (1000000, 60, 16),
            (1500000, 40, 64),
            (2000000, 80, 4),
            (1500000, 20, 16),
            (300000, 80, 64),
            (2000000, 40, 64),
        ],
    ),
    Sweep(
        program="forest",
        small={"samples": [250, 500, 1000], "features": [5, 10], "trees": [5, 10, 20], "depth": [4, 8]},
        full={"samples": [2000, 4000], "features": [10, 20], "trees": [20, 40], "depth": [8]},
        asked=[
            (3000, 10, 40, 8),
            (4000, 15, 30, 8),
            (2500, 20, 25, 6),
            (6000, 20, 40, 8),
            (4000, 20, 80, 8),
            (8000, 10, 40, 8),
            (3000, 15, 60, 8),
            (4000, 20, 40, 12),
        ],
    ),
    Sweep(
        program="xz",
        small={"size_mb": [1, 2, 4], "preset": [0, 1, 3, 6], "kind": ["random", "words"]},
        full={"size_mb": [8, 16], "preset": [1, 6], "kind": ["random", "words"]},
        asked=[
            (12, 6, "random"),
            (12, 3, "words"),
            (16, 4, "random"),
            (24, 6, "random"),
            (24, 6, "words"),
            (32, 1, "random"),
            (16, 2, "random"),
            (10, 6, "words"),
        ],
    ),
    Sweep(
        program="solver",
        small={"side": [20, 40, 80], "tolerance": [1e-3, 1e-6], "method": ["cg", "direct"]},
        full={"side": [150, 220], "tolerance": [1e-6, 1e-9], "method": ["cg", "direct"]},
        repeats=2,
        asked=[
            (180, 1e-6, "cg"),
            (180, 1e-6, "direct"),
            (220, 1e-8, "cg"),
            (300, 1e-6, "cg"),
            (300, 1e-9, "direct"),
            (200, 1e-9, "cg"),
            (400, 1e-6, "cg"),
            (350, 1e-6, "direct"),
        ],
    ),
    Sweep(
        program="database",
        small={"rows": [10000, 30000, 60000], "indexes": [0, 1, 2], "queries": [10, 40]},
        full={"rows": [150000, 300000], "indexes": [0, 2], "queries": [40, 100]},
        asked=[
            (200000, 0, 100),
            (200000, 1, 60),
            (300000, 1, 100),
            (500000, 0, 100),
            (500000, 2, 100),
            (250000, 0, 200),
            (100000, 2, 80),
            (600000, 1, 60),
        ],
    ),
    Sweep(
        program="bodies",
        small={"count": [50, 100, 200], "steps": [5, 10, 20, 40]},
        full={"count": [400, 600], "steps": [20, 40]},
        repeats=2,
        asked=[(500, 30), (500, 40), (300, 60), (800, 40), (600, 100), (1000, 20), (450, 20), (700, 60)],
    ),
    Sweep(
        program="spectrum",
        small={"length": [10007, 65536, 100003, 200000], "repeats": [2, 5, 10], "pad": ["yes", "no"]},
        full={"length": [500009, 1000000], "repeats": [5, 10], "pad": ["yes", "no"]},
        asked=[
            (700001, 10, "yes"),
            (700001, 10, "no"),
            (800000, 8, "no"),
            (1500000, 10, "yes"),
            (1500007, 10, "no"),
            (2000000, 5, "yes"),
            (1000000, 20, "no"),
            (300000, 10, "yes"),
        ],
    ),
    Sweep(
        program="shards",
        small={"items": [10000, 20000, 50000, 100000], "limit": [30000, 150000], "repeats": [1, 2, 4]},
        full={"items": [200000, 400000], "limit": [150000, 1000000], "repeats": [2, 4]},
        asked=[
            (300000, 150000, 4),
            (300000, 1000000, 4),
            (250000, 150000, 3),
            (600000, 1000000, 4),
            (600000, 150000, 4),
            (400000, 1000000, 8),
            (150000, 30000, 3),
            (800000, 1000000, 4),
        ],
    ),
    Sweep(
        program="clusters",
        small={"samples": [1000, 2000, 5000], "k": [2, 4, 8], "iterations": [2, 5, 10]},
        full={"samples": [10000, 20000], "k": [8, 16], "iterations": [10]},
        asked=[
            (15000, 8, 10),
            (15000, 12, 10),
            (20000, 16, 15),
            (40000, 16, 10),
            (20000, 32, 10),
            (30000, 8, 20),
            (10000, 12, 20),
            (50000, 8, 10),
        ],
    ),
    Sweep(
        program="pagerank",
        held_out=True,
        small={"nodes": [2000, 5000, 10000], "degree": [5, 10], "iterations": [10, 50]},
        full={"nodes": [50000, 100000], "degree": [10, 20], "iterations": [50, 100]},
        asked=[
            (75000, 15, 75),
            (100000, 10, 60),
            (60000, 20, 100),
            (200000, 10, 100),
            (100000, 40, 100),
            (150000, 20, 200),
            (30000, 20, 80),
            (80000, 10, 400),
        ],
    ),
    Sweep(
        program="parsing",
        held_out=True,
        small={"records": [2000, 5000, 10000], "fields": [5, 20], "form": ["json", "csv"]},
        full={"records": [50000, 100000], "fields": [10, 20], "form": ["json", "csv"]},
        repeats=2,
        asked=[
            (70000, 15, "json"),
            (70000, 20, "csv"),
            (80000, 10, "csv"),
            (200000, 20, "json"),
            (200000, 10, "csv"),
            (100000, 40, "json"),
            (30000, 20, "csv"),
            (150000, 30, "csv"),
        ],
    ),
    Sweep(
        program="blur",
        held_out=True,
        small={"side": [100, 200, 400], "radius": [1, 4], "passes": [2, 5]},
        full={"side": [1000, 1500], "radius": [4, 10], "passes": [5, 10]},
        asked=[
            (1200, 6, 8),
            (1500, 10, 7),
            (1000, 8, 10),
            (2500, 10, 10),
            (1500, 20, 10),
            (2000, 4, 20),
            (800, 10, 5),
            (3000, 6, 5),
        ],
    ),
    Sweep(
        program="stencil",
        held_out=True,
        small={"side": [100, 200, 400], "steps": [50, 100, 200], "precision": ["float32", "float64"]},
        full={"side": [800, 1200], "steps": [200, 400], "precision": ["float32", "float64"]},
        asked=[
            (1000, 300, "float64"),
            (1000, 400, "float32"),
            (1200, 250, "float64"),
            (2000, 400, "float64"),
            (2000, 200, "float32"),
            (1200, 1000, "float64"),
            (600, 400, "float32"),
            (3000, 100, "float64"),
        ],
    ),
    Sweep(
        program="factors",
        held_out=True,
        small={"size": [50, 100, 200, 300], "method": ["qr", "svd", "eigen"]},
        full={"size": [500, 700], "method": ["qr", "svd", "eigen"]},
        repeats=2,
        asked=[
            (600, "qr"),
            (600, "svd"),
            (600, "eigen"),
            (1000, "qr"),
            (1000, "svd"),
            (1000, "eigen"),
            (1400, "qr"),
            (400, "svd"),
        ],
    ),
    Sweep(
        program="sieve",
        held_out=True,
        small={"limit": [200000, 500000, 1000000, 2000000], "segment": [10000, 50000, 200000]},
        full={"limit": [5000000, 10000000], "segment": [50000, 200000, 1000000]},
        repeats=2,
        asked=[
            (7000000, 100000),
            (7000000, 500000),
            (10000000, 100000),
            (20000000, 200000),
            (20000000, 50000),
            (15000000, 1000000),
            (3000000, 500000),
            (30000000, 1000000),
        ],
    ),
)
