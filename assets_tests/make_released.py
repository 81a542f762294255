"""Writes what a release leaves on a disk, for the tests of later versions: ``python -m assets_tests.make_released``.

Belongs here: the source of these tables and files, and the folders that are kept: tables, manifests, catalogs. Does not belong: what later
versions find in them (``test_released``).

It is run once for each release, with its code and its version in ``pyproject.toml`` (CONTRIBUTING.md, Releasing), and its folder is
committed. What a release has written never changes.
"""

import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assets_tests.harness import Folder, Project
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.spark.session import stop_server

RELEASED = Path(__file__).resolve().parent / "released"
SHOP: dict[str, Any] = {
    "incremental": ["public.appended:id:integer", "public.merged:at:timestamp!upsert"],
    "containers": {"appended": {"partition_by": 100}, "merged": {"partition_by": "month"}},
}
LANDING: dict[str, Any] = {"containers": {"all": {"glob": "*.csv", "options": {"header": True}}}, "settle_seconds": 0}
TABLES = """create table appended (id bigserial primary key, note text);
    insert into appended (note) select 'a' from generate_series(1, 250);
    create table merged (id int primary key, note text, at timestamptz);
    insert into merged select i, 'a', timestamptz '2026-01-01 00:00Z' + i * interval '1 hour' from generate_series(1, 900) i;
    create table whole (id int, note text);
    insert into whole values (1, 'a'), (2, null)"""
FILES = {"a.csv": "id,note\n1,a\n", "b.csv": "id,note\n1,b\n2,b\n"}


def make(place: Path) -> None:
    """Syncs a database and a folder, and writes their tables and catalogs into the folder ``place``."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres")
        server.start()
        try:
            shop = Project(Path(folder) / "shop", server.create_database("shop"), Path(folder), **SHOP)
            shop.execute(TABLES)
            landing = Folder(Path(folder) / "landing", Path(folder), **LANDING)
            for name, text in FILES.items():
                landing.put(name, text)
            for project in (shop, landing):
                project.write()
                for _ in range(2):  # the second one looks, and stores what it has learned
                    project.cli("sync")
                shutil.copytree(project.lake_root / project.store, place / "tables" / project.store)
                for state in project.path.glob("defs/.local_defs_state/*/state"):
                    shutil.copy(state, place / f"{project.store}-catalog.json")
            shop.source.close()
        finally:
            stop_server(Path(folder))
            server.remove()


if __name__ == "__main__":
    target = RELEASED / version("incremental-assets")
    if target.exists():
        sys.exit(f"{target} is there. What a release has written never changes; is the version in pyproject.toml the new one?")
    make(target)
    sys.stderr.write(f"wrote {target}\n")
