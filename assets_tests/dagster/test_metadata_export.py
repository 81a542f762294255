"""``export metadata``, and ``metadata:`` of the YAML: documents that other programs read, of tables synced from a real PostgreSQL.

Belongs here: what programs that know the formats make of the documents. Does not belong: Dagster's own metadata (``test_metadata``).
"""

import asyncio
import importlib.resources
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cdm.enums import CdmStatusLevel
from cdm.objectmodel import CdmCorpusDefinition
from cdm.storage import LocalAdapter
from open_data_contract_standard.model import OpenDataContractStandard

from assets_tests.cli.test_json import documented
from assets_tests.harness import Project
from incremental_assets.core.metadata_documents import MetadataFormat
from incremental_assets.core.names import encode_name
from incremental_assets.dagster.components.metadata import MetadataEntry
from incremental_assets.delta.folders import METADATA_FOLDER
from incremental_assets.runs.metadata_export import export_lines

MANIFEST = "default.manifest.cdm.json"
EVIL = "o\"rd'ers / ../ü: #1"
QUOTED = '"' + EVIL.replace('"', '""') + '"'
TABLES = f"""
create table customers (id int primary key, name varchar(40) not null, balance numeric(12,2), "a/b ""c"" é" text);
comment on table customers is 'Who buys: "us"';
comment on column customers.name is 'As "they"\nwrite it';
create table products (kind text, number int, primary key (kind, number));
create table {QUOTED} (
  id bigint primary key, customer int references customers, kind text, number int, seen timestamptz, made timestamp, day date, raw bytea,
  foreign key (kind, number) references products
);
insert into customers values (1, 'a', 1.5, 'x'), (2, 'b', null, null);
insert into products values ('k', 1);
insert into {QUOTED} values (1, 1, 'k', 1, now(), now(), current_date, 'x');
"""
PLAIN = {"deletion_vectors": False}


@pytest.fixture
def shop(project: Callable[..., Project]) -> Project:
    made = project(
        incremental=[{"table": f"public.{EVIL}", "column": "id", "type": "integer"}],
        containers={
            "products": PLAIN,
            "customers": {
                "checks": [
                    {"rule": "not_null", "columns": ["name"], "tolerance": 0.01},
                    {"rule": "unique", "columns": ["name"], "scope": "table", "severity": "warn"},
                    {"rule": "expected_values", "column": "name", "values": ["a", "b"]},
                    {"rule": "between", "column": "balance", "min": 0, "max": 10, "description": "A balance: small"},
                ]
            },
            EVIL: {
                "schedule": "0 * * * *",
                "deletion_vectors": True,
                "checks": [{"rule": "freshness", "column": "seen", "max_age": "36 hours"}],
            },
        },
    )
    made.execute(TABLES)
    return made


def exported(shop: Project, format_: str, output: Path | None = None) -> dict[str, dict[str, Any]]:
    definitions = shop.catalog()
    place = None if output is None else str(output)
    lines = export_lines(definitions, shop.lake, MetadataFormat(format_), place, frozenset({"shop"}))
    return {line["container"].partition("/")[2]: line for line in lines}


class Read:
    """The manifest as Microsoft's object model of the Common Data Model reads it. Each of its errors and warnings fails the test."""

    def __init__(self, root: Path) -> None:
        self.troubles: list[str] = []
        self.corpus: Any = CdmCorpusDefinition()
        self.corpus.ctx.report_at_level = CdmStatusLevel.WARNING
        self.corpus.set_event_callback(lambda _, message: self.troubles.append(message), CdmStatusLevel.WARNING)
        if (root / "config.json").exists():
            self.corpus.storage.mount_from_config((root / "config.json").read_text())
        else:
            self.corpus.storage.mount("local", LocalAdapter(str(root)))
        self.corpus.storage.default_namespace = "local"
        self.manifest: Any = asyncio.run(self.corpus.fetch_object_async(f"local:/{MANIFEST}"))
        assert self.manifest is not None, self.troubles
        self.declared = {one.entity_name: one for one in self.manifest.entities}
        self.resolved: dict[str, Any] = {}
        self.entities = {name: self._entity(name, one) for name, one in self.declared.items()}
        assert not self.troubles, self.troubles

    def _entity(self, name: str, declared: Any) -> Any:
        found = asyncio.run(self.corpus.fetch_object_async(declared.entity_path, self.manifest))
        assert found is not None, self.troubles
        resolved = asyncio.run(found.create_resolved_entity_async(f"resolved_{found.entity_name}"))
        assert resolved is not None, self.troubles
        self.resolved[name] = resolved
        return found

    def attributes(self, entity: str) -> dict[str, Any]:
        return {one.name: one for one in self.entities[entity].attributes}

    def locations(self, entity: str) -> list[Path]:
        """The data of an entity, as files and folders."""
        found = [one.location for one in self.declared[entity].data_partitions]
        absolute = [self.corpus.storage.create_absolute_corpus_path(one, self.manifest) for one in found]
        return [Path(self.corpus.storage.corpus_path_to_adapter_path(one)) for one in absolute]

    def relationships(self) -> set[tuple[str, str, str, str]]:
        def name(path: str) -> str:
            return path.rpartition("/")[2]

        return {
            (name(one.from_entity), one.from_entity_attribute, name(one.to_entity), one.to_entity_attribute)
            for one in self.manifest.relationships
        }


@pytest.mark.long
@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.long)], ids=["in the lake", "elsewhere"])
def test_the_object_model_of_cdm_reads_types_keys_relationships_and_data(shop: Project, tmp_path: Path, beside: bool) -> None:
    """A reader of the Common Data Model must find each table with its types, keys and files, whatever the names in the source are."""
    shop.sync()
    output = tmp_path / "out" if beside else None
    lines = exported(shop, "cdm", output)
    assert {line["status"] for line in lines.values()} == {"written"}
    root = output / "shop" if output else shop.lake_root / "shop"
    read = Read(root)
    evil = encode_name(EVIL)
    assert set(read.entities) == {"customers", "products", evil}
    types = {name: one.data_type.named_reference for name, one in read.attributes(evil).items()}
    assert types == {
        "id": "bigInteger", "customer": "integer", "kind": "string", "number": "integer", "seen": "dateTimeOffset", "made": "dateTime",
        "day": "date", "raw": "binary",
    }  # fmt: skip
    customers = read.attributes("customers")
    assert customers["name"].description == 'As "they"\nwrite it'
    assert list(customers) == ["id", "name", "balance", 'a/b "c" é']
    assert [one.name for one in read.resolved["customers"].attributes if one.is_primary_key] == ["id"]
    assert [one.is_nullable for one in customers.values()] == [False, False, True, True]
    shape = next(one for one in customers["balance"].applied_traits if one.named_reference == "is.dataFormat.numeric.shaped")
    assert [int(one.value) for one in shape.arguments] == [12, 2]
    assert read.relationships() == {
        (evil, "customer", "customers", "id"), (evil, "kind", "products", "kind"), (evil, "number", "products", "number"),
    }  # fmt: skip
    # The table without deletion vectors has its files, and the others only what readers of Delta Lake can use.
    files = shop.table("products").opened()
    assert files is not None
    assert [str(path) for path in read.locations("products")] == sorted(files.file_uris())
    assert read.locations("customers") == [shop.lake_root / "shop" / "customers"]


@pytest.mark.long
def test_where_plain_readers_of_parquet_would_be_wrong_documents_and_output_say_so(shop: Project) -> None:
    """A reader of plain Parquet would see deleted rows where there are deletion vectors; who only has the document must know it."""
    shop.sync()
    lines, contracts = exported(shop, "cdm"), exported(shop, "odcs")
    assert [lines["products"]["plain_parquet"], contracts["products"]["plain_parquet"]] == [True, True]
    assert lines["products"]["message"] is None
    # The name of one of the columns of customers needs column mapping, which makes it worse.
    assert "deletion vectors" in lines[EVIL]["message"] and "must not" in lines[EVIL]["message"]
    assert not lines["customers"]["plain_parquet"]
    manifest = json.loads((shop.lake_root / "shop" / MANIFEST).read_text())
    said = {one["entityName"]: one for one in manifest["entities"]}
    assert "must not" in said[encode_name(EVIL)]["explanation"] and "must not" not in said["products"]["explanation"]
    assert said["customers"]["dataPartitions"][0]["exhibitsTraits"] == ["is.partition.format.deltaLake"]
    contract = yaml.safe_load(Path(contracts[EVIL]["path"]).read_text())
    assert "must not" in contract["description"]["limitations"]


def test_contracts_are_valid_and_have_keys_rules_partitions_and_service_levels(shop: Project) -> None:
    """A contract that the standard's schema refuses, or that leaves a rule out, would promise something else than the container keeps."""
    shop.sync()
    lines = exported(shop, "odcs")
    schema = json.loads((importlib.resources.files("open_data_contract_standard") / "schema.json").read_text())
    contracts: dict[str, Any] = {}
    for name, line in lines.items():
        text = Path(line["path"]).read_text()
        contracts[name] = yaml.safe_load(text)
        jsonschema.Draft201909Validator(schema).validate(contracts[name])
        assert OpenDataContractStandard.from_string(text).id == f"shop/{name}"
    customers = contracts["customers"]["schema"][0]
    columns = {one["name"]: one for one in customers["properties"]}
    assert [(one["logicalType"], one["physicalType"], one["required"]) for one in columns.values()] == [
        ("integer", "int", True), ("string", "string", True), ("number", "decimal(12,2)", False), ("string", "string", False),
    ]  # fmt: skip
    assert columns["id"]["primaryKey"] and columns["id"]["unique"] and columns["name"]["unique"]
    assert columns["name"]["description"] == 'As "they"\nwrite it' and "description" not in columns["id"]
    null, unique, expected, between = customers["quality"]
    assert (null["metric"], null["mustBeLessOrEqualTo"], null["unit"]) == ("nullValues", 1.0, "percent")
    assert (unique["metric"], unique["mustBe"], unique["severity"]) == ("duplicateValues", 0, "warning")
    assert expected["arguments"] == {"property": "name", "validValues": ["a", "b"]}
    assert between["engine"] == "incremental-assets" and between["implementation"]["max"] == 10
    evil = contracts[EVIL]
    assert [(one["property"], one["value"], one.get("unit")) for one in evil["slaProperties"]] == [
        ("latency", 36, "h"), ("frequency", "0 * * * *", None),
    ]  # fmt: skip
    properties = {one["name"]: one for one in evil["schema"][0]["properties"]}
    assert properties["id"]["partitioned"] and "partitioned" not in properties["day"]
    assert properties["customer"]["relationships"][0]["to"] == "customers.odcs.yaml#/schema/customers/properties/id"
    assert len(evil["schema"][0]["relationships"][0]["from"]) == 2


@pytest.mark.long
def test_a_sync_writes_the_documents_anew_and_a_failure_to_do_so_is_a_warning(shop: Project, tmp_path: Path) -> None:
    """Documents must follow the schema by themselves; one that cannot be written must not cost rows, and must not be overlooked."""
    output = tmp_path / "out"
    shop.configure(metadata=MetadataEntry(format=["cdm", "odcs"], output=str(output)))
    assert {line["status"] for line in shop.sync().values()} <= {"synced"}
    documents = output / "shop" / METADATA_FOLDER
    assert set(Read(output / "shop").entities) == {"customers", "products", encode_name(EVIL)}
    shop.execute("alter table customers add column vip boolean; insert into customers values (3, 'c', 1, 'x', true)")
    shop.one("customers")
    assert "vip" in Read(output / "shop").attributes("customers")
    shutil.rmtree(output)
    output.write_text("a file where the folder should be")
    shop.execute("insert into customers values (4, 'd', 1, 'x', true)")
    line = shop.one("customers")
    assert len(shop.rows("customers")) == 4
    with shop.instance() as instance:
        run = instance.get_run_by_id(line["run_id"])
        assert run is not None and run.is_success and run.tags["dagster/incremental_assets.result"] == "warning"
        said = [entry.user_message for entry in instance.all_logs(line["run_id"])]
    warned = [text for text in said if "was not written" in text]
    assert len(warned) == 2 and all("incremental-assets export metadata shop/customers" in text for text in warned)
    assert not documents.exists()


@pytest.mark.long
def test_the_command_writes_documents_and_says_which_tables_there_are_none_of(shop: Project) -> None:
    """Without Spark and without the source, the command must describe what is there, and name what is not."""
    shop.sync("products")
    shop.write()
    shop.cli("catalog", "shop", spark=False)
    _, lines, _ = shop.cli("export", "metadata", "shop", "--json", spark=False)
    assert {line["container"].partition("/")[2]: line["status"] for line in lines} == {
        "products": "written", "customers": "skipped", EVIL: "skipped",
    }  # fmt: skip
    assert all(set(line) == documented("export metadata") for line in lines)
    _, _, said = shop.cli("export", "metadata", "shop/customers", "--format", "odcs", spark=False)
    assert re.search("no table yet; sync it", said)
    shop.cli("export", "everything", check=2, spark=False)
    shop.cli("export", "metadata", "--format", "xml", check=2, spark=False)
