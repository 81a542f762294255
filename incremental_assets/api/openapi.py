"""The OpenAPI document, and a page that shows it: both are made from the endpoints and the models of their bodies and queries.

The page has no script and loads nothing, so that it works without the internet.
"""

import html
import json
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from incremental_assets.api.endpoints import ENDPOINTS, Endpoint
from incremental_assets.api.guard import MOST_BYTES

_REFERENCE = "#/components/schemas/{model}"
_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
_OPERATION: dict[str, Any] = {
    **_OBJECT,
    "description": "An operation. Of a request, items are its runs.",
    "properties": {
        "id": {"type": "string"},
        "type": {"type": "string"},
        "result": {"enum": ["queued", "running", "success", "failure", "aborted"]},
        **dict.fromkeys(("created", "start_time", "end_time", "message", "triggered_by", "schedule", "request", "container"), _TEXT),
        "duration": {"type": ["number", "null"], "description": "Seconds; of a run that goes on, until now."},
        "items": {"type": "array", "items": _OBJECT},
        "troubles": {"type": "array", "description": "What could not be launched or aborted, beside the others."},
    },
}
_PAGE: dict[str, Any] = {
    "type": "object",
    "required": ["items", "total", "page", "size", "pages"],
    "properties": {
        "items": {"type": "array", "items": _OBJECT},
        **{name: {"type": "integer"} for name in ("total", "page", "size", "pages")},
    },
}
_CONTAINER: dict[str, Any] = {
    **_OBJECT,
    "properties": {
        **{name: {"type": "string"} for name in ("id", "name", "strategy")},
        "incremental_field": {"type": ["string", "array", "null"]},
        "proposal": {**_TEXT, "description": "The entry that the catalog proposes."},
        "status": {**_OBJECT, "description": "As `incremental-assets status --json`."},
    },
}
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {**{name: {"type": "string"} for name in ("type", "title", "detail")}, "status": {"type": "integer"}},
}


def document() -> dict[str, Any]:
    """The OpenAPI document (3.1)."""
    models = {model for one in ENDPOINTS for model in (one.body,) if model is not None}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema([(model, "validation") for model in ordered], by_alias=False, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path.replace(":path", ""), {})[one.method.lower()] = _described(one)
    shapes = {"Operation": _OPERATION, "Page": _PAGE, "Container": _CONTAINER, "Problem": _PROBLEM}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "incremental-assets: operations",
            "version": version("incremental-assets"),
            "description": "Launches and shows operations of a project. Send Authorization: Bearer TOKEN: the read token for GET, the "
            f"write token for everything. A body has at most {MOST_BYTES:,} bytes.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {**found.get("$defs", {}), **shapes},
        },
    }


def _described(endpoint: Endpoint) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(endpoint.status).phrase}
    if endpoint.answer:
        answer["content"] = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=endpoint.answer)}}}
    problem = {"schema": {"$ref": _REFERENCE.format(model="Problem")}}
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": [*_of_path(endpoint), *_of_query(endpoint)],
        "responses": {
            str(int(endpoint.status)): answer,
            "default": {"description": "What is wrong, as problem details", "content": {"application/problem+json": problem}},
        },
    }
    if endpoint.body is not None:
        schema = {"$ref": _REFERENCE.format(model=endpoint.body.__name__)}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _of_path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}] if "{id" in endpoint.path else []


def _of_query(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = endpoint.query.model_json_schema(by_alias=False)
    renamed = {"start": "from", "end": "to"}
    return [
        {"name": renamed.get(name, name), "in": "query", "required": False, "schema": one}
        for name, one in schema.get("properties", {}).items()
    ]


_STYLE = """body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;width:100%}
td,th{border:1px solid #bbb;padding:.3em .6em;text-align:left;vertical-align:top}h2{margin-top:2em;font-size:1.1em}
code{background:#f2f2f2;padding:0 .2em}pre{background:#f2f2f2;padding:1em;overflow:auto}"""


def page() -> str:
    """The document as a page for people."""
    found = document()
    parts = [f"<h1>{_safe(found['info']['title'])}</h1><p>{_safe(found['info']['description'])}</p>"]
    parts.append('<p>For programs: <a href="/openapi.json"><code>/openapi.json</code></a></p>')
    for path, methods in found["paths"].items():
        for method, one in methods.items():
            token = "read or write" if method == "get" else "write"
            parts.append(f"<h2><code>{method.upper()} {_safe(path)}</code></h2><p>{_safe(one['summary'])} Token: {token}.</p>")
            rows = [(parameter["name"], parameter["schema"]) for parameter in one["parameters"] if parameter["in"] == "query"]
            if "requestBody" in one:
                name = one["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                rows += found["components"]["schemas"][name]["properties"].items()
            if rows:
                parts.append("<table><tr><th>name</th><th>type</th><th>meaning</th></tr>" + "".join(map(_row, rows)) + "</table>")
    body = "".join(parts)
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>incremental-assets API</title><style>{_STYLE}</style><body>{body}"


def _row(row: tuple[str, dict[str, Any]]) -> str:
    name, schema = row
    shape = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    kind = schema.get("type") if set(shape) == {"type"} else json.dumps(shape, ensure_ascii=False)
    default = f" Default: {schema['default']}." if schema.get("default") is not None else ""
    return f"<tr><td><code>{_safe(name)}</code><td><code>{_safe(kind)}</code><td>{_safe(schema.get('description', '') + default)}</tr>"


def _safe(text: Any) -> str:
    return html.escape(str(text))
