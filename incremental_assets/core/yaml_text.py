"""YAML that is written for people, on one line: values in flow style, and comments."""

import io
import re
from typing import Any

import yaml

TEMPLATE = re.compile(r"\{[{%#]")
"""The beginning of what Dagster reads as a template in a text of a component's YAML."""


def comment_text(value: object) -> str:
    """The value as text for a YAML comment. Line breaks are escaped, because a comment ends with its line."""
    text = str(value)
    return text if text.isprintable() else ascii(text)


class _OnALine(yaml.SafeDumper):
    """Dumps YAML with escapes in texts that would otherwise break the line or contain invisible characters."""


def _text(dumper: Any, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')


_OnALine.add_representer(str, _text)


def flow(value: Any) -> str:
    """The value as YAML in flow style, on one line."""
    how: dict[str, Any] = {"Dumper": _OnALine, "default_flow_style": True, "sort_keys": False, "width": float("inf")}
    text = ""
    for unicode in (True, False):
        document = io.StringIO()
        yaml.dump(value, document, allow_unicode=unicode, **how)
        text = document.getvalue().removesuffix("\n").removesuffix("\n...")  # the mark of the end of a document
        if text.isprintable():
            break
    return text
