"""The demo's data are those of TPC-H, moved in time and in nothing else."""

import csv
import io
from datetime import date, timedelta

from incremental_assets.demo.source import FIRST_ORDER, LAST_SHIPMENT, TPCH, last_day, moved

ORDERS = next(table for table in TPCH if table.name == "orders")
HEAD = "o_orderkey,o_custkey,o_orderstatus,o_totalprice,o_orderdate,o_orderpriority,o_clerk,o_shippriority,o_comment"


def test_dates_are_moved_and_nothing_else() -> None:
    """The comparison at the end is with what was loaded, so that a text that is lost on the way into the source would be seen by nobody."""
    rows = [
        ["1", "37", "O", "131251.81", "1996-01-02", "5-LOW", "Clerk#000000951", "0", 'a "quoted", text\nof two lines'],
        ["2", "78", "O", "040183.29", "1992-02-29", "1-URGENT", "NULL", "0", ""],
    ]
    written = io.StringIO(newline="")
    csv.writer(written).writerows([HEAD.split(","), *rows])
    days = 10_000
    data = b"".join(moved(io.BytesIO(written.getvalue().encode()), ORDERS, LAST_SHIPMENT + timedelta(days=days)))
    head, *found = csv.reader(io.StringIO(data.decode(), newline=""))
    assert head == HEAD.split(",")
    for row in rows:
        row[4] = (date.fromisoformat(row[4]) + timedelta(days=days)).isoformat()
    assert found == rows


def test_the_data_begin_with_a_month() -> None:
    """Otherwise the rule about the number of rows in the demo's YAML finds the first months suspicious, and the demo ends with an error."""
    assert (last_day() - (LAST_SHIPMENT - FIRST_ORDER)).day == 1
