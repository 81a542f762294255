"""The files of a new project and of a new datastore: those that ``incremental-assets init`` writes, a minimal dg project that works at
once, and the one that ``dg scaffold defs incremental_assets.PostgresDatastore`` writes, in which two values are left to be filled in.
"""

import re
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.project.templates import render

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["incremental-assets"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "defs"
defs_module = "defs"
code_location_name = "{name}"   # as in workspace.yaml
code_location_target_module = "definitions"
"""
_DEFINITIONS = '''\
"""The code location: the datastores in `defs`, the lake, and whatever else you define there."""

from pathlib import Path

from dagster import Definitions
from dagster.components import definitions

from incremental_assets import build_definitions


@definitions
def defs() -> Definitions:
    return build_definitions(Path(__file__).resolve().parent)
'''
_WORKSPACE = """\
load_from:
  - python_module:
      module_name: definitions
      working_directory: .
      location_name: {name}
"""
_IGNORE = ".dagster_home/\n/lake/\n.env\n__pycache__/\n.local_defs_state/\n"
_EXAMPLE = """\
A datastore is a folder here with a defs.yaml, for example defs/shop/defs.yaml:

type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: "{{ env.SHOP_URL }}"           # postgresql://user:password@host:port/database
  schema: public
  incremental:
    - "public.orders:o_orderdate:date"
    - "public.customer:updated_at:timestamp!upsert"

Then: incremental-assets sync
"""


_DATASTORE = """\
# Fill in two values: the variable {variable}, in the file .env of the project or in the environment, and the schema.
# Then the tables are loaded by: incremental-assets sync {name}
type: {component}
attributes:
  name: {name}
  url: "{{{{ env.{variable} }}}}"   # 1. {variable}=postgresql://user:password@host:5432/database
  schema: public   # 2. the schema of the tables; each becomes an asset
  identifiers: auto   # what tells new rows from old is found out, and used where it is proved; `incremental:` decides it
  catalog: {{schedule: "7 * * * *"}}   # looks for new tables and columns
"""


class DatastoreScaffolder(dg.Scaffolder[Any]):
    """Writes the ``defs.yaml`` of a PostgreSQL database for ``dg scaffold defs``. The datastore is called as its folder."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        if request.scaffold_format == "python":
            scaffold_component(request)
            return
        file = request.target_path if request.append else request.target_path / "defs.yaml"
        name = re.sub(r"\W+", "_", file.parent.name, flags=re.ASCII)
        text = _DATASTORE.format(name=name, component=request.type_name, variable=f"{name.upper()}_URL")
        with file.open("a" if request.append else "w", encoding="utf-8") as written:
            written.write(f"---\n{text}" if request.append else text)


def write_project(directory: Path) -> list[Path]:
    """Writes the project and returns the paths of its files.

    Raises ConfigurationError, before anything is written, where ``directory`` is a file or where one of the project's files exists already.
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", directory.resolve().name).strip("-_") or "project"
    files = {
        "pyproject.toml": _PYPROJECT.format(name=name),
        "definitions.py": _DEFINITIONS,
        "defs/__init__.py": "",
        "defs/README.txt": _EXAMPLE,
        "workspace.yaml": _WORKSPACE.format(name=name),
        "dagster.yaml": render("dagster.yaml", deployed=False),
        ".gitignore": _IGNORE,
    }
    if directory.exists() and not directory.is_dir():
        raise ConfigurationError(f"{directory} is a file.")
    for relative in files:
        if (directory / relative).exists():
            raise ConfigurationError(
                f"{directory / relative} is already there; nothing was written. To add a database: incremental-assets add URL"
            )
    written: list[Path] = []
    for relative, text in files.items():
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
