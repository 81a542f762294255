import incremental_assets  # noqa: F401  before Dagster imports gRPC, which reads its settings then
