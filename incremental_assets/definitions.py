"""The code location of this repository: the demo's datastores. Other projects have a ``definitions.py`` like it (`init` writes one)."""

import os
from pathlib import Path

from dagster import Definitions
from dagster.components import definitions

from incremental_assets.dagster.definitions import build_definitions

PROJECT = Path(__file__).resolve().parent.parent


def prepare() -> None:
    """The demo's URL and landing folder, for its YAML, unless they are given."""
    from incremental_assets.demo.landing import LANDING_FOLDER
    from incremental_assets.demo.postgres import demo_url

    os.environ.setdefault("INCREMENTAL_ASSETS_DEMO_URL", demo_url(PROJECT))
    os.environ.setdefault("INCREMENTAL_ASSETS_DEMO_LANDING", str(PROJECT / LANDING_FOLDER))


@definitions
def defs() -> Definitions:
    prepare()
    return build_definitions(PROJECT)
