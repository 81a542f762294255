"""The job of one container: it is what Dagster itself would make, and making it takes no longer where there are many containers.

Belongs here: jobs over one asset (``one_asset_job``). Does not belong: their runs (``test_dagster``).
"""

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph import AssetNode
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from incremental_assets.runs.dagster_internals.one_asset_job import one_asset_job

TAGS = {"dagster/incremental_assets.container": "shop/a"}


def project(names: str) -> list[dg.AssetsDefinition | dg.AssetSpec | dg.AssetChecksDefinition]:
    """An asset of each name over a source of its own, as a datastore has them, and checks that a project may have beside them."""

    def asset(name: str) -> dg.AssetsDefinition:
        @dg.asset(key=["shop", name], deps=[["shop", "public", name]], required_resource_keys={"lake"}, group_name="shop")
        def sync() -> None: ...

        return sync

    @dg.asset_check(asset=dg.AssetKey(["shop", "a"]), additional_deps=[dg.AssetKey(["shop", "b"])], blocking=True)
    def agrees_with_b() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.multi_asset_check(specs=[dg.AssetCheckSpec("filled", asset=dg.AssetKey(["shop", name])) for name in "ab"], can_subset=True)
    def filled():
        yield dg.AssetCheckResult(passed=True, asset_key=["shop", "a"])

    @dg.asset(deps=[dg.AssetKey(["shop", "a"])])
    def report() -> None: ...

    sources = [dg.AssetSpec(["shop", "public", name]) for name in names]
    return [*map(asset, names), *sources, agrees_with_b, filled, report]


def resolved(job: UnresolvedAssetJobDefinition, names: str = "abcd") -> dg.JobDefinition:
    parts = project(names)
    checks = [one for one in parts if isinstance(one, dg.AssetChecksDefinition)]
    assets = [one for one in parts if not isinstance(one, dg.AssetChecksDefinition)]
    return dg.Definitions(assets, asset_checks=checks, jobs=[job], resources={"lake": "the lake"}).resolve_job_def("sync_a")


def test_the_job_is_the_one_that_dagster_makes_of_all_assets() -> None:
    """Otherwise a run would leave out checks, or the order in which a blocking check and what it reads come."""
    key = dg.AssetKey(["shop", "a"])
    theirs = resolved(dg.define_asset_job("sync_a", dg.AssetSelection.assets(key), description="Sync of shop/a.", tags=TAGS))
    ours = resolved(one_asset_job("sync_a", key, "Sync of shop/a.", TAGS))
    assert ours.get_job_snapshot() == theirs.get_job_snapshot()
    assert ours.run_tags == theirs.run_tags == TAGS
    layers = [job.asset_layer for job in (ours, theirs)]
    assert layers[0].selected_asset_keys == layers[1].selected_asset_keys == {key}
    selected = [{check.name for check in layer.asset_graph.asset_check_keys} for layer in layers]
    assert selected[0] == selected[1] == {"agrees_with_b", "filled"}
    assert ours.execute_in_process(resources={"lake": "the lake"}).success


def test_a_job_over_an_asset_that_is_not_there_is_refused_in_dagsters_words() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Failed to resolve asset job sync_a") as refused:
        resolved(one_asset_job("sync_a", dg.AssetKey(["shop", "gone"]), "", {}))
    assert "gone" in str(refused.value.__cause__)


def test_making_a_job_takes_no_longer_where_there_are_more_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a code location makes all jobs: with 1,000 containers that took more than half a minute, with 10,000 an hour."""
    made = [0]
    plain = AssetNode.__init__

    def counted(self: AssetNode, *args: object, **kwargs: object) -> None:
        made[0] += 1
        plain(self, *args, **kwargs)  # pyright: ignore[reportArgumentType]

    def nodes_of_the_job(names: str) -> int:
        parts = project(names)
        assets = [one for one in parts if not isinstance(one, dg.AssetChecksDefinition)]
        job = one_asset_job("sync_b", dg.AssetKey(["shop", "b"]), "", {})
        repository = dg.Definitions(assets, jobs=[job], resources={"lake": "the lake"}).get_repository_def()
        made[0] = 0
        with monkeypatch.context() as patched:
            patched.setattr(AssetNode, "__init__", counted)
            repository.get_job("sync_b")
        return made[0]

    assert nodes_of_the_job("abcdefghijklmnopqrstuvwxyz") == nodes_of_the_job("abcd")
