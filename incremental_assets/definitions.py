"""The Dagster code location of this repository: the datastores of the demo.

Other projects have a ``definitions.py`` of their own, which ``incremental-assets init`` writes.
"""

import os
from pathlib import Path

from dagster import Definitions
from dagster.components import definitions

from incremental_assets.dagster.definitions import build_definitions

PROJECT = Path(__file__).resolve().parent.parent


def prepare() -> None:
    """Sets the demo's PostgreSQL URL and landing folder for the templates in its YAML. Values that the environment already has are kept."""
    from incremental_assets.demo.postgres import LANDING_FOLDER, demo_url

    os.environ.setdefault("INCREMENTAL_ASSETS_DEMO_URL", demo_url(PROJECT))
    os.environ.setdefault("INCREMENTAL_ASSETS_DEMO_LANDING", str(PROJECT / LANDING_FOLDER))


@definitions
def defs() -> Definitions:
    """The definitions that Dagster loads."""
    prepare()
    return build_definitions(PROJECT)
