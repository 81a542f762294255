"""A job over one asset whose definition takes the same time in a large project as in a small one.

Dagster resolves each asset job from the graph of all assets of the code location, and walks through all of them for each job. With a job
for each asset, the time grows with the square of their number: 1,000 assets take more than half a minute, 10,000 more than an hour.
"""

from collections.abc import Mapping

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph, AssetNode
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


class OneAssetJob(UnresolvedAssetJobDefinition):
    """An asset job that Dagster resolves from its asset, the checks of that, and what these depend on, instead of from all assets."""

    def resolve(
        self,
        asset_graph: AssetGraph,
        default_executor_def: dg.ExecutorDefinition | None = None,
        resource_defs: Mapping[str, dg.ResourceDefinition] | None = None,
    ) -> dg.JobDefinition:
        return super().resolve(_neighbours(asset_graph, self.selection), default_executor_def, resource_defs)


def one_asset_job(name: str, key: dg.AssetKey, description: str, tags: Mapping[str, str]) -> OneAssetJob:
    """The same job as ``dg.define_asset_job`` makes of these arguments."""
    return OneAssetJob(name, dg.AssetSelection.assets(key), description=description, tags=tags)


def implicit_job(definitions: dg.Definitions, key: dg.AssetKey) -> dg.JobDefinition:
    """Dagster's job of all assets, as far as it is about one of them, for a run in this process.

    The whole job is resolved once. Its selection of one asset would walk through all of them again, as the repository's graph is made anew
    each time that it is asked for.
    """
    whole = definitions.resolve_implicit_global_asset_job_def()
    graph = whole.asset_layer.asset_graph.source_asset_graph
    job = one_asset_job(IMPLICIT_ASSET_JOB_NAME, key, "", {}).resolve(graph, whole.executor_def, whole.resource_defs)
    return job.with_logger_defs(whole.loggers)


def _neighbours(graph: AssetGraph, selection: dg.AssetSelection) -> AssetGraph:
    """The part of the graph that the selected assets, their checks, and the assets that are read by either consist of.

    It is the whole graph where one of them is missing, so that Dagster says so in its own words, or where one is virtual: Dagster then
    looks for what lies behind that.
    """
    keys = getattr(selection, "selected_keys", ())
    if not keys or not all(graph.has(key) for key in keys):
        return graph
    chosen = graph.assets_defs_for_keys([*keys, *(check for key in keys for check in graph.get(key).check_keys)])
    of_chosen = {key for one in chosen for key in one.keys}
    read = {key for one in chosen for key in (*one.node_keys_by_input_name.values(), *one.node_keys_by_output_name.values())}
    nodes = [graph.get(key) for key in read - of_chosen if graph.has(key)]
    if any(node.is_virtual for node in nodes):
        return graph
    return AssetGraph.from_assets([*chosen, *{_apart(node) for node in nodes}])


def _apart(node: AssetNode) -> dg.AssetsDefinition:
    """The definition of an asset that is read. Dagster keeps all plain specs of a code location in one definition: this has one only."""
    whole = node.assets_def
    return whole if whole.is_executable or len(whole.keys) == 1 else dg.AssetsDefinition(specs=[node.to_asset_spec()])
