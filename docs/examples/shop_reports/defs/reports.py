"""Two reports of the shop's containers: one is overwritten by month, in Spark, the other is merged by customer, in pandas."""

import dagster as dg
import pandas as pd

# The first month must not lie after the first order. `end_offset=1`: the month that is not over yet is a partition, too.
MONTHS = dg.MonthlyPartitionsDefinition(start_date="2026-01-01", end_offset=1)
# Dagster's daemon requests an asset when what it depends on was updated, once the automation sensor is switched on.
WHEN_SYNCED = dg.AutomationCondition.eager()


@dg.asset(
    io_manager_key="delta",
    partitions_def=MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    ins={"orders": dg.AssetIn(["shop", "orders"], metadata={"columns": ["ordered_on", "cents"]})},
    metadata={"partition_expr": "month"},
    automation_condition=WHEN_SYNCED,
)
def revenue_by_month(orders):
    """What was ordered in each month. A run reads the orders of its months only, and overwrites those months."""
    return orders.selectExpr("trunc(ordered_on, 'MM') AS month", "cents").groupBy("month").agg({"cents": "sum"}).toDF("month", "cents")


@dg.asset(
    io_manager_key="delta",
    ins={
        "orders": dg.AssetIn(["shop", "orders"], metadata={"columns": ["customer_id", "cents"]}),
        "customer": dg.AssetIn(["shop", "customer"], metadata={"columns": ["id", "name"]}),
    },
    metadata={"write": "merge", "merge_keys": ["customer_id"]},
    automation_condition=WHEN_SYNCED,
)
def customer_totals(orders: pd.DataFrame, customer: pd.DataFrame) -> pd.DataFrame:
    """What each customer has ordered. It is merged, so that a customer who is deleted in the shop stays in the report."""
    totals = orders.groupby("customer_id", as_index=False)["cents"].sum()
    return totals.merge(customer, left_on="customer_id", right_on="id")[["customer_id", "name", "cents"]]


@dg.asset_check(asset=customer_totals)
def totals_are_positive(customer_totals: pd.DataFrame) -> dg.AssetCheckResult:
    """An order has a price."""
    wrong = customer_totals[customer_totals["cents"] <= 0]
    return dg.AssetCheckResult(passed=wrong.empty, metadata={"customers": len(customer_totals), "wrong": wrong["customer_id"].tolist()})
