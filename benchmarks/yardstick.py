"""A fixed piece of work on one core, by which the speed of machines, and of one machine at different hours, is compared.

Belongs here: the work and its time. Does not belong: anything of this project, whose speed must not influence the yardstick.
"""

import io
import statistics
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS, WORDS = 400_000, 150_000
"""How many rows pyarrow sorts, prints and writes as Parquet, and how many texts Python puts into a dictionary."""
TURNS = 3
"""How often the work is done. The median counts."""


def _work() -> None:
    """Work of the kinds that the benchmarks consist of: Python objects, and sorting, printing, compressing and parsing columns."""
    found = {f"container_{number * 7919 % WORDS}": [number, str(number)] for number in range(WORDS)}
    assert sum(first for first, _ in sorted(found.values(), key=lambda pair: pair[1])) > 0
    numbers = pa.array(np.random.default_rng(0).integers(0, 10**9, ROWS))
    table = pa.table({"number": numbers, "text": numbers.cast(pa.string())}).take(pc.array_sort_indices(numbers))
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    file.seek(0)
    read = pq.read_table(file, use_threads=False)
    assert pc.sum(read["text"].cast(pa.int64())).as_py() == pc.sum(numbers).as_py()


def yardstick() -> float:
    """The seconds of the work, the median of some turns. They are those of the clock, so that other load on the machine counts as well."""
    seconds: list[float] = []
    for _ in range(TURNS):
        started = time.perf_counter()
        _work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
