"""One step of the comparison done by dlt, in a process of its own: `python -m benchmarks.dlt_side STEP URL FOLDER LAKE`.

Belongs here: dlt as its own documentation sets it up (connectorx backend, filesystem destination, Delta tables). Does not belong: the
measurement.
"""

import json
import sys


def main(step: str, url: str, folder: str, lake: str) -> None:
    """Runs one step and prints the number of rows that dlt loaded, as JSON.

    ``step``: `load` appends the whole table; `first`, `upsert` and `unchanged` merge the rows whose `updated_at` is new. ``folder``: where
    dlt keeps its state. ``lake``: the URL under which it keeps its tables.
    """
    import dlt  # pyright: ignore[reportMissingImports] - of the extra `bench`
    from dlt.sources.sql_database import sql_table  # pyright: ignore[reportMissingImports]

    pipeline = dlt.pipeline(
        "bench_" + ("upsert" if step in ("first", "upsert", "unchanged") else "append"),
        destination=dlt.destinations.filesystem(bucket_url=lake),
        dataset_name="append" if step == "load" else "upsert",
        pipelines_dir=folder,
    )
    incremental = None if step == "load" else dlt.sources.incremental("updated_at")
    table = sql_table(
        credentials=url, schema="public", table="line_item", backend="connectorx", backend_kwargs={"return_type": "arrow"},
        incremental=incremental,
    )  # fmt: skip
    how = "append" if step == "load" else {"disposition": "merge", "strategy": "upsert"}
    table.apply_hints(primary_key=["l_orderkey", "l_linenumber"], table_format="delta", write_disposition=how)
    pipeline.run(table)
    counts = pipeline.last_trace.last_normalize_info.row_counts if pipeline.last_trace.last_normalize_info else {}
    sys.stdout.write(json.dumps({"rows": counts.get("line_item", 0)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:5])
