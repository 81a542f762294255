"""What a sync reports, as Dagster's metadata.

Belongs here: the conversion of values. Does not belong: which values there are (``delta.result``).
"""

import dagster as dg

from incremental_assets.core.schema import Column
from incremental_assets.runs.records.metadata import as_metadata


def test_each_kind_of_value_becomes_metadata() -> None:
    """Otherwise each sync of a container that has a profile, whose page is a path, fails after its rows were written."""
    path = dg.MetadataValue.path("profile.html")
    values = {"page": path, "rows": 3, "text": "t", "none": None, "list": [1], "columns": (Column("id", "bigint"),)}
    found = as_metadata(values)
    assert found["page"] is path and found["rows"] == dg.MetadataValue.int(3) and found["text"] == "t" and "none" not in found
    assert found["list"] == dg.MetadataValue.json([1]) and found["columns"] == dg.TableSchema([dg.TableColumn("id", "bigint")])
