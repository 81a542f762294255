"""Templates of the files that ``incremental-assets init`` writes into a project, and what fills them in.

Belongs here: the texts of these files. Does not belong: what they are filled with, or where they are written (``scaffold``,
``deployment``).

Variables stand in ``[[ ]]`` and statements in ``[% %]``, as braces are much used in the files themselves.
"""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    block_start_string="[%",
    block_end_string="%]",
    variable_start_string="[[",
    variable_end_string="]]",
    comment_start_string="[#",
    comment_end_string="#]",
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)


def render(name: str, /, **values: Any) -> str:
    """The text of the template ``name``, with these values. Raises UndefinedError where a value is missing."""
    return _ENVIRONMENT.get_template(name).render(values)
