"""A lint: Spark SQL is built only from constants and from the results of functions that quote.

Belongs here: searching the package's source for names and values that reach such text unquoted. PostgreSQL's SQL is composed by psycopg,
which quotes by itself; here it is checked that psycopg gets no text as SQL except some that are listed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import incremental_assets

PACKAGE = Path(incremental_assets.__file__).parent
CHECKED = (
    "core/rules", "delta", "quality", "profiles", "databases", "files", "project", "runs", "operations", "dagster", "spark/session.py"
)  # fmt: skip
KEYWORDS = re.compile(
    r"\b(SELECT|FROM|WHERE|AND|OR|AS|IN|IS|NOT|NULL|BETWEEN|CASE|WHEN|THEN|ELSE|END|ALTER|CREATE|TABLE|MERGE|VALUES|COMMENT|DESCRIBE|OPTIMIZE"
    r"|VACUUM|RESTORE|PARTITION BY|ORDER BY|FILTER|RLIKE|LIKE|GROUP BY|SET)\b|\b(cast|try_cast|select|from|where)\b.*\b(as|from|where)\b"
)
CALL = re.compile(r"\b[a-z_0-9]+\($")
"""What stands before an interpolation that is an argument of one of Spark's functions."""
QUOTING = {
    *("assignments", "column_sql"),
    *("quote", "backticked", "double_quoted", "literal", "text", "key_text", "type_text", "exact", "constant"),  # names, constants, types
    "sql_text",
    *(
        "scope_predicate",
        "window_predicate",
        "file_predicate",
        "folder_predicate",
        "partition_start",
        "partition_of",
        "identifier_expression",
        "align",
    ),
    *("column", "number", "moment", "condition", "frequent_state", "estimates"),  # the first three are of ScannedTable
    "among",  # conditions for the engine of delta-rs
    *("cursor_value", "window_condition", "identifier_value"),
    *("boxes_predicate", "condition_predicate", "axis_value", "partition_value"),  # of users' own tables
    *(
        "quoted",
        "relation",
        "relation_of",
        "text_literal",
        "domain_predicate",
        "calendar_predicate",
        "whole_predicate",
    ),  # of MySQL, and of JDBC
    *("int", "len", "round", "range", "step_of"),
}
"""Functions whose result is safe in Spark SQL. Functions of the same module are checked themselves."""
SQL_ATTRIBUTES = {
    "literals",
    *("sql_name", "predicate", "partition"),  # made by the functions above
    "type",  # of a column: made by ``spark_types``
    *("distinct", "quantiles", "frequent", "width", "steps_per_day", "first", "last", "known"),  # numbers
}
RAW = {
    *(
        "name",
        "names",
        "key",
        "keys",
        "column",
        "columns",
        "field",
        "fields",
        "comment",
        "label",
        "container",
        "path",
        "url",
        "file",
        "value",
    ),
    *("values", "kind", "schema", "table", "header", "pattern"),
}
"""Names of parameters that hold texts of sources and of people. A parameter that holds text for SQL has another name."""
MESSAGE, NUMBER, OWN_TEXT = "a message to a person", "a number", "a text that this package has made"
REVIEWED = {
    ("delta/sql.py", "value"): NUMBER,
    ("delta/own_frames.py", "label"): MESSAGE,
    ("delta/own_frames.py", "nulls"): MESSAGE,
    ("core/rules/keys.py", "self.broken_groups"): OWN_TEXT,
    ("core/rules/sql.py", "value"): NUMBER,
    ("files/readers/parquet_types.py", "type_.precision"): NUMBER,
    ("files/readers/parquet_types.py", "type_.scale"): NUMBER,
    ("core/rules/table.py", "column"): "quoted by ScannedTable.column",
    ("core/rules/table.py", "ago"): "of a column that ScannedTable.column has quoted, and of a moment",
    ("core/rules/table.py", "-AHEAD_SECONDS"): NUMBER,
    ("quality/failed_rows.py", "self._key"): "by _key_in_sql",
    ("quality/groups.py", "self._column"): "quoted by ScannedTable.column",
    ("quality/groups.py", "same"): "of _names, which ScannedTable.column has quoted, and of keys of its own",
    ("quality/groups.py", "name"): "of _names, which ScannedTable.column has quoted",
    ("quality/groups.py", "key"): "key_0, key_1, …",
    ("quality/groups.py", "keys"): "key_0, key_1, …",
    ("profiles/states.py", "', '.join(fields)"): OWN_TEXT,
    ("profiles/states.py", "found.get(name, 'NULL')"): OWN_TEXT,
    ("profiles/states.py", "kind"): OWN_TEXT,
    ("profiles/states.py", "number"): OWN_TEXT,
    ("profiles/states.py", "hashed"): OWN_TEXT,
    ("profiles/states.py", "times[form]"): OWN_TEXT,
    ("profiles/store.py", "columns"): OWN_TEXT,
    ("profiles/store.py", "name"): OWN_TEXT,
    ("profiles/store.py", "kind"): OWN_TEXT,
    **{("profiles/store.py", f"one[{i}]"): NUMBER for i in range(3)},
    ("profiles/suggest.py", "present"): "by RowRule.condition",
    ("quality/records.py", "listed"): "hexadecimal digits",
    ("files/readers/formats.py", "cells.value(cell, column.type, staged.reading)"): "of a cell v0, v1, … and a type",
    ("files/readers/formats.py", "cells.mask(quote(name), self._staged.reading, bits)"): "quoted",
    ("files/readers/path_values.py", "cells.value(f'{IS}.texts[{number}]', column.type, self._staged.reading)"): "of a text and a type",
    ("files/readers/path_values.py", "one"): "conditions of a text and a type",
    ("files/readers/read.py", "of_path"): "of a text and a type",
    ("files/readers/read.py", "self._paths.value(i)"): "of a text and a type",
    **{("files/readers/formats.py", one): "of a cell v0, v1, … and constants" for one in ("remedy", "said")},
    **{("files/readers/cells.py", one): "of a cell v0, v1, … and constants" for one in ("plain[type_]", "' | '.join(bits) or '0'")},
    ("files/readers/formats.py", "expression"): "of quoted names and types",
    ("files/readers/formats.py", "fits"): "of a cell v0, v1, … and a type",
    ("files/readers/formats.py", "cell"): "v0, v1, …",
    ("files/readers/delimited.py", "', '.join(reasons)"): OWN_TEXT,
    ("files/readers/delimited.py", "quoting.original(name)"): "of a cell v0, v1, …",
    ("files/readers/delimited.py", "quoting.original(LINE)"): OWN_TEXT,
    ("files/readers/staging.py", "ours"): "the name of a temporary folder",
    **{("databases/postgres/failures.py", one): MESSAGE for one in ("label", "name", "address.user")},
    ("databases/postgres/row_security.py", "role"): "quoted by PostgreSQL, in a statement that is shown",
    **{("databases/plan_warnings.py", one): MESSAGE for one in ("', '.join(server.not_set)", "server.not_set[0]")},
    **{("databases/postgres/capture/slot.py", one): MESSAGE for one in ("label", "self.slot")},
    ("databases/postgres/capture/slot.py", "table"): "quoted by psycopg, in a statement that is shown",
    ("databases/postgres/capture/setup.py", "user"): "quoted by psycopg, in a statement that is shown",
    ("databases/postgres/extract.py", "c.decode.format(f'c{i}')"): OWN_TEXT,
    ("databases/postgres/session.py", "self._row('select pg_backend_pid()')[0]"): NUMBER,
    **{("delta/hashed_rows.py", one): "made of quoted names of columns" for one in ("text", "value", "rows")},
    ("delta/hashed_rows.py", "chosen"): NUMBER,
    ("delta/hashed_rows.py", "self._table"): "the quoted name of a table, and a version",
    ("delta/hashed_rows.py", "self._unmarked"): "a condition with a quoted name",
    ("dagster/datastore.py", "settings.name"): MESSAGE,
    **{
        ("files/hashed_rows.py", one): "made of quoted names of columns, and of the names of tables and views"
        for one in ("hash_of(texts)", "hash_of(line)", "query", "value", "inner", "texts", "self._in(scope)", "self._rows")
    },
    ("files/hashed_rows.py", "chosen"): NUMBER,
    ("databases/mysql/connection.py", "label"): MESSAGE,
    **{("databases/mysql/rows.py", one): MESSAGE for one in ("container.label", "where", "container.name", "one.column.name")},
    **{("databases/mysql/session.py", one): MESSAGE for one in ("container.label", "found[0][0]", "container.name")},
    **{
        ("databases/mysql/hashed_rows.py", one): "made of quoted names of columns"
        for one in ("plain", "text", "self._key_hash", "self._hash", "self._where(scope)")
    },
    ("databases/mysql/keys.py", "one.name"): "quoted: see types.Carried",
    ("databases/mysql/types.py", "name"): "quoted",
    ("databases/mysql/reader.py", "where"): "the YAML's own SQL",
    **{("databases/mysql/reader.py", one): "made of quoted names of columns" for one in ("value", "texts", "carried.select", "row_hash")},
    ("databases/mysql/reader.py", "' and '.join(parts)"): "made of quoted names of columns",
    ("databases/sqlserver/connection.py", "label"): MESSAGE,
    **{
        ("databases/sqlserver/hashed_rows.py", one): "made of quoted names of columns"
        for one in ("text", "self._hash", "self._where(scope)", "carried.name", "carried.select")
    },
    ("databases/sqlserver/keys.py", "format(Decimal(text), 'f')"): NUMBER,
    ("databases/sqlserver/queries.py", "value.encode('utf-16-le').hex()"): "hexadecimal digits",
    ("databases/sqlserver/queries.py", "width"): NUMBER,
    **{
        ("databases/sqlserver/statements.py", one): "made of quoted names of columns"
        for one in ("mark", "sql", "null_predicate(container, identifier)", "marks[0].name", "one.select")
    },
    ("databases/sqlserver/statements.py", "where_clause(container)"): "the YAML's own SQL",
    ("databases/sqlserver/transactions.py", "now"): OWN_TEXT,
    ("databases/sqlserver/types.py", "size if size != 'max' and int(size) <= MOST_NVARCHAR else 'max'"): NUMBER,
    ("databases/sqlserver/types.py", "name"): "quoted",
    ("databases/jdbc/reader.py", "one.in_lake(label, f'c{i}')"): "made by types.Carried, of quoted names and texts",
    ("databases/jdbc/reader.py", "hash_of(texts)"): "made of quoted names of columns",
    ("databases/jdbc/reader.py", "where"): "the YAML's own SQL",
    ("databases/jdbc/source.py", "types.get(one.column.name.lower(), one.column.type)"): "made by ``spark_types``",
    **{("databases/jdbc/types.py", one): "made of a quoted name and quoted texts" for one in ("value", "is_exact", "refused")},
    **{("delta/publish.py", one): MESSAGE for one in ("label", "name", "table.url")},
    **{("databases/source_checks.py", one): MESSAGE for one in ("container.label", "', '.join(container.primary_key)", "wrong")},
}
"""Interpolations that the lint cannot judge and a person has reviewed: module and interpolation, with why it has no unquoted text of a
source."""
SINKS = {"sql", "expr", "selectExpr", "where", "filter"}
"""Functions that take text as SQL; ``option("replaceWhere", …)`` does so, too."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for part in CHECKED:
        for path in sorted((PACKAGE / part).rglob("*.py")) if (PACKAGE / part).is_dir() else [PACKAGE / part]:
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def is_sql(text: ast.JoinedStr) -> bool:
    parts = text.values
    constants = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
    return any(KEYWORDS.search(part) or CALL.search(part) for part in constants)


class Scope:
    """Finds what a name of a module may stand for, in its function, in the functions around it, and in the module."""

    def __init__(self, module: ast.Module) -> None:
        self.module = module
        self.own = {node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
        """The module's functions, whose own texts are checked, too."""
        self.around: dict[ast.AST, ast.AST] = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}

    def values_of(self, name: str, at: ast.AST) -> list[ast.expr] | None:
        """All values that the name is given in the nearest scope that gives it one. None where it is a parameter or its values are not
        found."""
        node: ast.AST | None = at
        while (node := self.around.get(node)) is not None:  # pyright: ignore[reportArgumentType]
            if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
                for loop in node.generators:
                    if name in _bound(loop.target):
                        return _elements(loop.iter, loop.target, name)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                arguments = node.args
                if name in {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}:
                    return None
            if isinstance(node, ast.FunctionDef | ast.Module):
                found: list[ast.expr] = []
                for one in ast.walk(node):
                    if isinstance(one, ast.Assign) and any(name in _bound(target) for target in one.targets):
                        if not all(isinstance(target, ast.Name) for target in one.targets):
                            return None
                        found.append(one.value)
                    elif isinstance(one, ast.AnnAssign | ast.AugAssign) and one.value is not None and name in _bound(one.target):
                        found.append(one.value)
                    elif isinstance(one, ast.For) and name in _bound(one.target):
                        elements = _elements(one.iter, one.target, name)
                        if elements is None:
                            return None
                        found += elements
                if found:
                    return found
        return None

    def is_safe(self, value: ast.expr, depth: int = 0) -> bool:
        """Whether the expression is known to have no unquoted text of a source."""
        if depth > 12:
            return False

        def safe(one: ast.expr) -> bool:
            return self.is_safe(one, depth + 1)

        match value:
            case ast.Constant():
                return True
            case ast.JoinedStr():
                return all(
                    safe(part.value) for part in value.values if isinstance(part, ast.FormattedValue) and part.conversion != ord("r")
                )
            case ast.IfExp():
                return safe(value.body) and safe(value.orelse)
            case ast.BinOp():
                return safe(value.left) and safe(value.right)
            case ast.BoolOp():
                return all(map(safe, value.values))
            case ast.List() | ast.Tuple() | ast.Set():
                return all(map(safe, value.elts))
            case ast.Starred():
                return safe(value.value)
            case ast.GeneratorExp() | ast.ListComp():
                return safe(value.elt)
            case ast.Subscript():
                return safe(value.value)
            case ast.Attribute(value=ast.Name(id=owner)) if owner.lstrip("_").isupper():
                return True  # an attribute of a constant of the package
            case ast.Attribute(attr="value", value=ast.Attribute(value=ast.Name(id="Form" | "Axis"))):
                return True
            case ast.Attribute():
                return value.attr in SQL_ATTRIBUTES or value.attr.lstrip("_") in SQL_ATTRIBUTES
            case ast.Name(id=name) if name.lstrip("_").isupper():
                return True
            case ast.Name():
                given = self.values_of(value.id, value)
                return value.id not in RAW if given is None else all(map(safe, given))
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=function), *_]):
                return function in QUOTING
            case ast.Call(func=ast.Name(id=function)):
                return function in QUOTING or function in self.own
            case ast.Call(func=ast.Attribute(attr=method)) if method in QUOTING:
                return True
            case ast.Call(func=ast.Attribute(attr="join" | "format", value=before)):
                return safe(before) and all(map(safe, value.args))
            case _:
                return False


def _bound(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _elements(iterable: ast.expr, target: ast.expr, name: str) -> list[ast.expr] | None:
    """What a loop's variable may be given: the iterable for a plain variable, or the iterable that is enumerated or zipped. None
    otherwise."""
    if isinstance(target, ast.Name):
        return [iterable]
    if isinstance(target, ast.Tuple) and isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
        names = [item.id if isinstance(item, ast.Name) else "" for item in target.elts]
        if iterable.func.id == "enumerate" and name in names:
            return [ast.Constant(0)] if names.index(name) == 0 else [iterable.args[0]]
        if iterable.func.id == "zip" and name in names:
            return [iterable.args[names.index(name)]]
    return None


def given_to_spark(module: ast.Module) -> Iterator[ast.JoinedStr]:
    """The f-strings that look like SQL, and those among the arguments of functions that take SQL."""
    seen: set[ast.JoinedStr] = set()
    for node in ast.walk(module):
        inside: list[ast.JoinedStr] = []
        if isinstance(node, ast.JoinedStr) and is_sql(node):
            inside = [node]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            replaces = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == "replaceWhere"
            if called in SINKS or replaces:
                inside = [one for argument in node.args for one in ast.walk(argument) if isinstance(one, ast.JoinedStr)]
        for one in inside:
            if one not in seen:
                seen.add(one)
                yield one


def unquoted(module: ast.Module) -> list[tuple[str, int]]:
    """The expressions that are interpolated into SQL and not known to be safe, each with its line."""
    scope = Scope(module)
    return [
        (ast.unparse(part.value), part.lineno)
        for text in given_to_spark(module)
        for part in text.values
        if isinstance(part, ast.FormattedValue) and part.conversion == -1 and not scope.is_safe(part.value)
    ]


def test_no_name_or_value_gets_into_spark_sql_unquoted() -> None:
    """Otherwise the name of a table, a column or a file becomes a part of a statement, so that its owner can run SQL on the server."""
    found = {(path, text): f"{path}:{line}: {text}" for path, module in modules() for text, line in unquoted(module)}
    new = [where for key, where in found.items() if key not in REVIEWED]
    assert not new, "quote these (core/names.py, core/spark_types.py, delta/sql.py):\n" + "\n".join(new)
    assert not set(REVIEWED) - set(found), f"these no longer exist: {set(REVIEWED) - set(found)}"


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ('spark.sql(f"SELECT * FROM {name}")', True),
        ('spark.sql(f"SELECT * FROM t WHERE {quote(column.name)} = {key}")', True),
        ('frame.where(f"{column} > 1")', True),
        ('writer.option("replaceWhere", f"{column} > 1")', True),
        ('made = f"cast(c AS {field.dataType.simpleString()})"', True),
        ('made = f"min({column.name})"', True),
        ("made = f\"IN ({', '.join(keys)})\"", True),
        ('spark.sql(f"SELECT {quote(name)} FROM {table.sql_name} WHERE k = {literal(key)}")', False),
        ('made = f"cast({quote(column.name)} AS {column.type})"', False),
        ("made = f\"IN ({', '.join(map(literal, keys))})\"", False),
    ],
)
def test_the_lint_finds_unquoted_text(line: str, is_found: bool) -> None:
    """Otherwise the lint may pass because it finds nothing at all."""
    module = ast.parse(f"def made(spark, frame, writer, table, name, names, key, keys, column, field):\n    {line}")
    assert bool(unquoted(module)) == is_found


def test_only_one_function_writes_types_as_sql() -> None:
    """Spark's own functions for that do not quote the names of nested fields, so that a name could end a cast."""
    for path, module in modules():
        used = [n.lineno for n in ast.walk(module) if isinstance(n, ast.Attribute) and n.attr in ("simpleString", "catalogString", "toDDL")]
        assert not used, f"{path}:{used}: use spark_types.type_text to write types"


# What each module gives to PostgreSQL as SQL without psycopg's quoting.
TRUSTED_POSTGRES = {
    "databases/postgres/cuts.py": {"trusted"},  # the name of a type, as PostgreSQL's catalog prints it
    "databases/postgres/extract.py": {"trusted"},  # names of types, as PostgreSQL's catalog prints them
    "databases/postgres/queries.py": {"str(int(value))", "_LITERAL[cursor_type]", "where"},  # the YAML's own ``where:``
    "databases/postgres/types.py": {
        "_EPOCH_MICROS if server_version >= 140000 else _EPOCH_MICROS_BEFORE_14",
        "'case when {0} is not null then concat({0}) end' if base in _CAST_CHANGES else '{0}::text'",
        "form",  # of the module's own list of canonical forms
    },
    "databases/postgres/reader.py": {"row_hash", "_BUCKET_TYPES[identifier.cursor_type]"},
    "databases/postgres/introspect.py": {"aggregate"},
    "databases/postgres/hashed_rows.py": {"_FLOAT", "_GROUPED", "group"},  # its own texts, and a number of buckets
    "databases/postgres/capture/log.py": {"_COUNT", "_PEEK", "_RELEVANT"},  # its own texts
    "databases/postgres/capture/lookup.py": {"types[column]"},  # names of types, as PostgreSQL's catalog prints them
    "databases/postgres/capture/setup.py": {"'ALTER PUBLICATION {} ADD TABLE {}' if exists else 'CREATE PUBLICATION {} FOR TABLE {}'"},
}


def test_postgres_gets_only_what_psycopg_has_quoted() -> None:
    """Otherwise PostgreSQL runs a name or a value of the source as SQL."""
    for path, module in modules():
        calls = [n for n in ast.walk(module) if isinstance(n, ast.Call) and ast.unparse(n.func) in ("sql.SQL", "SQL") and n.args]
        texts = {ast.unparse(call.args[0]) for call in calls if not isinstance(call.args[0], ast.Constant)}
        assert texts <= TRUSTED_POSTGRES.get(path, set()), (path, texts)
