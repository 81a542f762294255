"""Reads Delta tables by DuckDB, as a program of its own: DuckDB is installed in a folder beside the project's environment.

Belongs here: exact values of what DuckDB has read. Does not belong: which tables (``test_duckdb``).

Its standard input is a JSON list: the path of a table, its columns as pairs of a name and a type of Delta, and who reads: duckdb, or
polars, by which columns are whole numbers. It prints the rows as a JSON
list, each value as in ``test_duckdb.exact``.
"""

import json
import math
import struct
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb  # pyright: ignore[reportMissingImports]
import duckdb_ext  # pyright: ignore[reportMissingImports]

SHOWN = {
    "date": "({} - DATE '1970-01-01')::VARCHAR", "timestamp": "epoch_us({})::VARCHAR", "timestamp_ntz": "epoch_us({})::VARCHAR",
    "binary": "lower(hex({}))", "string": "{}", "float": "{}", "double": "{}",
}  # fmt: skip
"""How a value of a type is shown; of the other types, as text."""


def value(found: Any, type_: str) -> str | None:
    if isinstance(found, float):
        return "NaN" if math.isnan(found) else struct.pack("<d", found).hex()
    if found is not None and type_.startswith("decimal"):
        return f"{Decimal(found):f}"  # DuckDB leaves out a zero before the point
    return found


def main() -> None:
    path, columns, by = json.load(sys.stdin)
    if by == "polars":
        import polars  # pyright: ignore[reportMissingImports]

        found = polars.scan_delta(path).select([name for name, _ in columns]).collect().rows()
        print(json.dumps([[str(value) for value in row] for row in found]))  # noqa: T201
        return
    (extension,) = (found for folder in duckdb_ext.__path__ for found in Path(folder).rglob("delta.duckdb_extension"))
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    connection.execute(f"LOAD '{extension}'")
    names = ['"' + name.replace('"', '""') + '"' for name, _ in columns]
    shown = [SHOWN.get(type_, "{}::VARCHAR").format(name) for name, (_, type_) in zip(names, columns, strict=True)]
    found = connection.execute(f"SELECT {', '.join(shown)} FROM delta_scan(?)", [path]).fetchall()
    print(json.dumps([[value(one, type_) for one, (_, type_) in zip(row, columns, strict=True)] for row in found]))  # noqa: T201


if __name__ == "__main__":
    main()
