"""The code location of this repository: the demo's datastore. Other projects have a ``definitions.py`` like it (`init` writes one)."""

import os
from pathlib import Path

from dagster import Definitions
from dagster.components import definitions

from incremental_assets.orchestration.code_location import build_definitions

PROJECT = Path(__file__).resolve().parent.parent


def prepare() -> None:
    """The demo's URL, for its YAML, unless it is given."""
    from incremental_assets.demo.postgres import demo_url

    os.environ.setdefault("INCREMENTAL_ASSETS_DEMO_URL", demo_url(PROJECT))


@definitions
def defs() -> Definitions:
    prepare()
    return build_definitions(PROJECT)
