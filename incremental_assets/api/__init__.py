"""Operations' API: a small HTTP service over a project's Dagster instance, which ``incremental-assets api`` starts.

Belongs here: requests, tokens, answers, and the OpenAPI document. Does not belong: the operations themselves, which are ordinary Dagster
runs (``dagster``); the service has no queue and no store of its own.
"""
