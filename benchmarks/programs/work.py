"""Ordinary programs to be measured: ``python work.py PROGRAM NAME=VALUE …``. Each uses one thread."""

import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"


def training(width: int, batch: int, steps: int) -> None:
    """A small network, trained with PyTorch."""
    import torch

    torch.set_num_threads(1)
    network = torch.nn.Sequential(
        torch.nn.Linear(64, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )
    optimizer = torch.optim.Adam(network.parameters())
    inputs, labels = torch.randn(batch, 64), torch.randint(10, (batch,))
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def attention(length: int, heads: int, algorithm: str) -> None:
    """Attention over a sequence: whole, with a matrix of all pairs, or in blocks."""
    import numpy as np

    draw = np.random.default_rng(0)
    q, k, v = (draw.normal(size=(heads, length, 32)).astype(np.float32) for _ in range(3))
    if algorithm == "whole":
        scores = np.exp(q @ k.transpose(0, 2, 1) / 6)
        (scores / scores.sum(axis=2, keepdims=True)) @ v
        return
    for start in range(0, length, 128):
        scores = np.exp(q[:, start : start + 128] @ k.transpose(0, 2, 1) / 6)
        (scores / scores.sum(axis=2, keepdims=True)) @ v


def walksat(variables: int, ratio: float, flips: int) -> None:
    """Random 3-SAT by local search; it ends when a solution is found."""
    draw = random.Random(1)
    clauses = [
        [variable * draw.choice((-1, 1)) for variable in draw.sample(range(1, variables + 1), 3)]
        for _ in range(int(ratio * variables))
    ]
    values = [False, *(draw.random() < 0.5 for _ in range(variables))]
    holds: Callable[[int], bool] = lambda literal: values[abs(literal)] == (literal > 0)  # noqa: E731
    for _ in range(flips):
        broken = [clause for clause in clauses if not any(map(holds, clause))]
        if not broken:
            return
        chosen = abs(draw.choice(draw.choice(broken)))
        values[chosen] = not values[chosen]


def sort(lines: int, length: int, buffer_mb: int) -> None:
    """``sort`` on lines of text; beyond its buffer it merges files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        draw = random.Random(0)
        words = ["".join(draw.choices("abcdefghijklmnop", k=length)) for _ in range(997)]
        with path.open("w") as file:
            for number in range(lines):
                file.write(f"{words[number * 7919 % 997]}{number * 104729 % 1000003:07d}\n")
        command = ["sort", "--parallel=1", f"--buffer-size={buffer_mb}M", "-T", folder, "-o", os.devnull, str(path)]
        subprocess.run(command, check=True, env={"LC_ALL": "C", "PATH": os.environ["PATH"]})


def forest(samples: int, features: int, trees: int, depth: int) -> None:
    """A random forest, fitted with scikit-learn."""
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    draw = np.random.default_rng(0)
    X = draw.normal(size=(samples, features))
    RandomForestRegressor(n_estimators=trees, max_depth=depth, n_jobs=1, random_state=0).fit(
        X, X[:, 0] + draw.normal(size=samples)
    )


def xz(size_mb: int, preset: int, kind: str) -> None:
    """``xz`` on random or repetitive bytes."""
    draw = random.Random(0)
    block = draw.randbytes(1_000_000) if kind == "random" else (b"%06d some words\n" * 20000) % tuple(range(20000))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        with path.open("wb") as file:
            for number in range(size_mb):
                file.write(block[number:] + block[:number] if kind == "random" else block[:1_000_000])
        subprocess.run(["xz", "-T1", f"-{preset}", "-c", str(path)], check=True, stdout=subprocess.DEVNULL)


def solver(side: int, tolerance: float, method: str) -> None:
    """A sparse linear system of a square grid: conjugate gradients, or a direct factorisation."""
    import numpy as np
    from scipy import sparse
    from scipy.sparse.linalg import cg, spsolve

    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    matrix = sparse.csc_matrix(sparse.kronsum(line, line))
    right = np.ones(side * side)
    if method == "direct":
        spsolve(matrix, right)
    else:
        cg(matrix.tocsr(), right, rtol=tolerance)


def database(rows: int, indexes: int, queries: int) -> None:
    """Rows into SQLite and out of it again; without an index each query reads them all."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a INTEGER, b INTEGER, c TEXT)")
    if indexes:
        connection.execute("CREATE INDEX i ON t (a)")
    if indexes > 1:
        connection.execute("CREATE INDEX j ON t (b)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ((i * 7919 % 10007, i, f"text {i}") for i in range(rows)))
    for number in range(queries):
        connection.execute("SELECT count(c) FROM t WHERE a = ?", (number,)).fetchone()


def bodies(count: int, steps: int) -> None:
    """Particles that attract each other, pair by pair."""
    import numpy as np

    draw = np.random.default_rng(0)
    place, speed = draw.normal(size=(count, 3)), np.zeros((count, 3))
    for _ in range(steps):
        apart = place[None] - place[:, None]
        speed += 1e-3 * (apart / ((apart**2).sum(axis=2) + 0.1)[..., None] ** 1.5).sum(axis=1)
        place += speed


def spectrum(length: int, repeats: int, pad: str) -> None:
    """Fourier transforms; a prime length takes a slower way unless it is padded."""
    import numpy as np
    from scipy import fft

    signal = np.random.default_rng(0).normal(size=length)
    size = 1 << (length - 1).bit_length() if pad == "yes" else length
    for _ in range(repeats):
        fft.irfft(fft.rfft(signal, size), size)


def shards(items: int, limit: int, repeats: int) -> None:
    """Counting keys in a dictionary; beyond a limit of items it goes through files instead."""
    keys = [number * 2654435761 % 1_000_003 for number in range(items)]
    if items <= limit:
        for _ in range(repeats):
            counts: dict[int, int] = {}
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
        return
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            files = [(Path(folder) / str(number)).open("w+") for number in range(32)]
            for key in keys:
                files[key % 32].write(f"{key}\n")
            for file in files:
                file.seek(0)
                len(set(file))
                file.close()


def clusters(samples: int, k: int, iterations: int) -> None:
    """k-means with all distances at once."""
    import numpy as np

    draw = np.random.default_rng(0)
    points = draw.normal(size=(samples, 16))
    centres = points[:k].copy()
    for _ in range(iterations):
        nearest = (np.square(points[:, None] - centres).sum(axis=2)).argmin(axis=1)
        for index in range(k):
            mine = points[nearest == index]
            centres[index] = mine.mean(axis=0) if len(mine) else centres[index]


def pagerank(nodes: int, degree: int, iterations: int) -> None:
    """Power iteration on a sparse random graph."""
    import numpy as np
    from scipy import sparse

    draw = np.random.default_rng(0)
    count = nodes * degree
    links = sparse.csr_matrix(
        (np.ones(count), (draw.integers(nodes, size=count), draw.integers(nodes, size=count))), shape=(nodes, nodes)
    )
    rank = np.full(nodes, 1 / nodes)
    for _ in range(iterations):
        rank = 0.15 / nodes + 0.85 * (links @ rank) / degree


def parsing(records: int, fields: int, form: str) -> None:
    """Records written as JSON or CSV and read again."""
    import csv
    import io
    import json

    rows = [{f"field{number}": row * number for number in range(fields)} for row in range(records)]
    if form == "json":
        json.loads(json.dumps(rows))
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writerows(rows)
    text.seek(0)
    list(csv.reader(text))


def blur(side: int, radius: int, passes: int) -> None:
    """A Gaussian filter over a picture."""
    import numpy as np
    from scipy import ndimage

    picture = np.random.default_rng(0).random((side, side))
    for _ in range(passes):
        picture = ndimage.gaussian_filter(picture, radius)


def stencil(side: int, steps: int, precision: str) -> None:
    """Heat on a square plate, by differences."""
    import numpy as np

    plate = np.zeros((side, side), dtype=precision)
    plate[0] = 100.0
    for _ in range(steps):
        plate[1:-1, 1:-1] = (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]) / 4


def factors(size: int, method: str) -> None:
    """A dense matrix taken apart."""
    import numpy as np

    matrix = np.random.default_rng(0).normal(size=(size, size))
    methods: dict[str, Callable[[Any], Any]] = {"qr": np.linalg.qr, "svd": np.linalg.svd, "eigen": np.linalg.eigvals}
    methods[method](matrix)


def sieve(limit: int, segment: int) -> None:
    """Primes below a limit, segment by segment."""
    import numpy as np

    small = [
        number for number in range(2, int(limit**0.5) + 1) if all(number % d for d in range(2, int(number**0.5) + 1))
    ]
    for start in range(0, limit, segment):
        marks = np.ones(segment, dtype=bool)
        for prime in small:
            marks[(-start) % prime :: prime] = False


def main() -> None:
    program, *words = sys.argv[1:]
    named = dict(word.split("=", 1) for word in words)
    globals()[program](**{name: _read(value) for name, value in named.items()})
    print(find_peak_bytes())


def find_peak_bytes() -> int:
    """The peak of this process or of its largest child; wait4() would count what started it as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 1024 * max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _read(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


if __name__ == "__main__":
    main()
