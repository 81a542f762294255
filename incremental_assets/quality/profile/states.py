"""What is computed of the rows: for each partition and column one state, all of them in one pass.

Belongs here: which aggregates a column of a type gets, and the sketches' parameters. Does not belong: where states are kept and merged
(``store``), or what they say (``column``).

Distinct values are counted by HyperLogLog, quantiles found by KLL, frequent values by a sketch of frequent items: Apache DataSketches, as
Spark 4.1 and later have them. States merge only where their parameters are the same; these are kept with each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.schema import Column
from incremental_assets.delta.guards import expr
from incremental_assets.quality.predicates import text
from incremental_assets.quality.profile.column import Form, form_of

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

LAYOUT = 1
"""Of a state's making; another number where the same parameters would mean something else."""
TEXT_LENGTH = 256
"""Characters (of binaries: bytes) that are kept of a value."""
RANKS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Of the quantiles that are kept beside the sketch, for each partition."""
FREQUENT = 20
"""How many of the most frequent values are kept beside the sketch."""
EXAMPLES = 4


@dataclass(frozen=True)
class Parameters:
    """How fine the sketches are; the larger, the more exact and the larger.

    ``distinct``: HLL's lgConfigK. 15: a standard error of 0.57 %, so that 999 of 1,000 counts are within 2 %; up to 32 kB. Up to some
    thousand values it counts almost exactly and in much less. ``quantiles``: KLL's k. 400: the rank is within 0.7 % (99 of 100 times); up
    to 10 kB. ``frequent``: the number of values followed. 380: exact for as many different ones, else each count within 0.7 % of the rows.
    """

    distinct: int = 15
    quantiles: int = 400
    frequent: int = 380

    def frequent_error(self, values: int, distinct: int | None) -> int:
        """Rows by which a count of the frequent values may be off, of so many values."""
        slots = 1 << (-(-self.frequent * 4 // 3) - 1).bit_length()  # as Spark sizes the sketch: a power of two that is filled to 3/4
        return 0 if distinct is not None and distinct <= 0.9 * min(self.frequent, slots * 3 // 4) else -(-values * 7 // (2 * slots))


PARAMETERS = Parameters()

STATE_COLUMNS = {
    "position": ("int", "Of the column in its table, from 0."),
    "column_name": ("string", "Name of the column."),
    "type": ("string", "Its type, as Spark calls it."),
    "form": ("string", "What kind of values, and for decimals the scale: states of different forms do not merge."),
    "layout": ("int", "Of the making of states."),
    "distinct_lg_k": ("int", "lgConfigK of distinct_state."),
    "quantiles_k": ("int", "k of quantiles_state."),
    "frequent_items": ("int", "Values that frequent_state follows."),
    "rows": ("bigint", "Rows of the partition."),
    "nulls": ("bigint", "Of those, rows in which the column is NULL."),
    "nans": ("bigint", "Of those, rows in which it is not a number."),
    "minimum": ("string", f"The least value as text; of texts and binaries (as hex) the first {TEXT_LENGTH}."),
    "maximum": ("string", "The greatest."),
    "numbers": ("bigint", "Finite numbers; mean and m2 are of those."),
    "mean": ("double", "Their mean."),
    "m2": ("double", "The sum of their squared distances from the mean."),
    "lengths": ("bigint", "Values that have a length: texts in characters, binaries in bytes."),
    "length_min": ("bigint", "The least length."),
    "length_max": ("bigint", "The greatest."),
    "length_sum": ("bigint", "The sum of all."),
    "examples": ("array<string>", "Some texts, drawn by chance."),
    "distinct_state": ("binary", "HLL sketch of the values (hll_union_agg merges them)."),
    "quantiles_state": ("binary", "KLL sketch: of doubles for decimals and floating numbers, else of bigints (times: days, microseconds)."),
    "frequent_state": ("binary", "Sketch of frequent values, as texts (the field sketch of approx_top_k_accumulate)."),
}
"""Of a state: type and meaning."""

ESTIMATE_COLUMNS = {
    "distinct_count": ("bigint", "Different values, by distinct_state."),
    "quantiles": ("array<string>", f"Values at the ranks {', '.join(map(str, RANKS))}, by quantiles_state."),
    "frequent": ("array<struct<item:string,count:bigint>>", f"The {FREQUENT} most frequent values, by frequent_state."),
}
"""What the sketches of one partition say."""


def profile_states(
    frame: "DataFrame", columns: Sequence[Column], partition: str | None = None, parameters: Parameters = PARAMETERS
) -> "DataFrame":
    """A row for each partition that has rows and each column: ``partition`` (as the frame has it), ``STATE_COLUMNS``, ``ESTIMATE_COLUMNS``.

    ``partition``: the column of the frame that tells partitions apart (NULL: a partition, too); None: all rows are one, also where there
    are none. Nothing is computed yet; it is one aggregation over the rows, however many columns.
    """
    grouped = frame.groupBy() if partition is None else frame.groupBy(expr(f"{quote(partition)} AS partition"))
    packed = grouped.agg(*(expr(f"{_state(n, column, parameters)} AS c{n}") for n, column in enumerate(columns)))
    key = "cast(NULL AS string) AS partition" if partition is None else "partition"
    states = packed.selectExpr(key, f"inline(array({', '.join(f'c{n}' for n in range(len(columns)))}))")
    return states.selectExpr("*", *estimates("distinct_state", "quantiles_state", "frequent_state", parameters, RANKS))


SHOW_VALUES = ("examples", "frequent_state", "frequent")
"""Columns of states that hold values of rows, beside the bounds of ``TEXT_FORMS``."""
TEXT_FORMS = (Form.TEXT.value, Form.BINARY.value)
"""Forms of columns whose bounds are values of texts."""


def kept_columns(samples: bool) -> list[str]:
    """Select expressions of what is kept of states; without samples no value of a text, nor any of the frequent values.

    What sketches and numbers tell stays: how many values, how they are distributed, the bounds of numbers and times.
    """
    names = [*STATE_COLUMNS, *ESTIMATE_COLUMNS]
    if samples:
        return names
    hidden = {name: f"cast(NULL AS {(STATE_COLUMNS | ESTIMATE_COLUMNS)[name][0]}) AS {name}" for name in SHOW_VALUES}
    listed = ", ".join(f"'{form}'" for form in TEXT_FORMS)
    hidden |= {name: f"CASE WHEN form NOT IN ({listed}) THEN {name} END AS {name}" for name in ("minimum", "maximum")}
    return [hidden.get(name, name) for name in names]


def empty_states(columns: Sequence[Column], parameters: Parameters = PARAMETERS) -> list[dict[str, Any]]:
    """What ``profile_states`` gives of no rows, a state a column."""
    found: list[dict[str, Any]] = []
    for position, column in enumerate(columns):
        form = form_of(column.type)
        nothing = {"rows": 0, "nulls": 0, "nans": 0, "distinct_count": None if form is Form.OTHER else 0}
        named = {**_made_with(position, column, parameters), **nothing}
        found.append({name: named.get(name) for name in (*STATE_COLUMNS, *ESTIMATE_COLUMNS)})
    return found


def estimates(distinct: str, quantiles: str, frequent: str, parameters: Parameters, ranks: Sequence[float]) -> list[str]:
    """Select expressions for ``ESTIMATE_COLUMNS``, of expressions for the sketches (each may be NULL) and a column ``form``."""
    at = f"array({', '.join(f'{rank!r}D' for rank in ranks)})"
    state = frequent_state(frequent, parameters)
    return [
        f"hll_sketch_estimate({distinct}) AS distinct_count",
        f"""CASE WHEN {quantiles} IS NULL THEN NULL
            WHEN form LIKE 'decimal%' OR form = '{Form.FLOATING.value}'
              THEN cast(kll_sketch_get_quantile_double({quantiles}, {at}) AS array<string>)
            WHEN form = '{Form.DAY.value}'
              THEN transform(kll_sketch_get_quantile_bigint({quantiles}, {at}), v -> cast(date_from_unix_date(cast(v AS int)) AS string))
            WHEN form IN ('{Form.LOCAL.value}', '{Form.INSTANT.value}')
              THEN transform(kll_sketch_get_quantile_bigint({quantiles}, {at}), v -> cast(timestamp_micros(v) AS string))
            ELSE cast(kll_sketch_get_quantile_bigint({quantiles}, {at}) AS array<string>) END AS quantiles""",
        f"CASE WHEN {frequent} IS NOT NULL THEN approx_top_k_estimate({state}, {FREQUENT}) END AS frequent",
    ]


def frequent_state(sketch: str, parameters: Parameters) -> str:
    """What Spark's functions take, made of the one part of it that is kept."""
    return (
        f"named_struct('sketch', {sketch}, 'maxItemsTracked', {parameters.frequent}, 'itemDataType', cast(NULL AS string), "
        f"'itemDataTypeDDL', 'item string not null')"
    )


def form_word(type_: str) -> str:
    """The ``form`` of a state. The scale of decimals is in it, as it is in the texts that are counted."""
    form = form_of(type_)
    scale = type_.rpartition(",")[2].strip(" )") if "," in type_ else "0"
    return f"{form.value}({scale})" if form is Form.DECIMAL else form.value


def _state(position: int, column: Column, parameters: Parameters) -> str:
    """The aggregates of one column, as a struct that is the same for all types."""
    form = form_of(column.type)
    x = quote(column.name)
    made = _made_with(position, column, parameters)
    found = {
        **{name: text(value) if isinstance(value, str) else str(value) for name, value in made.items()},
        "rows": "count(*)",
        "nulls": f"count_if({x} IS NULL)",
        "nans": f"count_if(isnan({x}))" if form is Form.FLOATING else "0",
        **_order_and_lengths(form, x),
        **_moments(form, x),
        **_sketches(form, x, parameters),
    }
    fields = (f"{text(name)}, cast({found.get(name, 'NULL')} AS {kind})" for name, (kind, _) in STATE_COLUMNS.items())
    return f"named_struct({', '.join(fields)})"


def _made_with(position: int, column: Column, parameters: Parameters) -> dict[str, str | int]:
    return {
        "position": position,
        "column_name": column.name,
        "type": column.type,
        "form": form_word(column.type),
        "layout": LAYOUT,
        "distinct_lg_k": parameters.distinct,
        "quantiles_k": parameters.quantiles,
        "frequent_items": parameters.frequent,
    }


def _order_and_lengths(form: Form, x: str) -> dict[str, str]:
    match form:
        case Form.OTHER:
            return {}
        case Form.FLOATING:  # to Spark, NaN is the greatest of all numbers
            number = f"CASE WHEN NOT isnan({x}) THEN {x} END"
            return {"minimum": f"min({number})", "maximum": f"max({number})"}
        case Form.TEXT | Form.BINARY:
            length = f"{'char_length' if form is Form.TEXT else 'octet_length'}({x})"
            shown = "{}" if form is Form.TEXT else "hex({})"
            found = {
                "minimum": shown.format(f"left(min({x}), {TEXT_LENGTH})"),
                "maximum": shown.format(f"left(max({x}), {TEXT_LENGTH})"),
                "lengths": f"count({x})",
                "length_min": f"min({length})",
                "length_max": f"max({length})",
                "length_sum": f"sum({length})",
            }
            if form is Form.TEXT:  # the one with the least hash, for each of some hashes: any value is as likely as any other
                drawn = (f"min_by(left({x}, {TEXT_LENGTH}), xxhash64({x}, {seed}))" for seed in range(EXAMPLES))
                found["examples"] = f"array_distinct(array_compact(array({', '.join(drawn)})))"
            return found
        case _:
            return {"minimum": f"min({x})", "maximum": f"max({x})"}


def _moments(form: Form, x: str) -> dict[str, str]:
    if not form.is_number:
        return {}
    number = f"cast({x} AS double)"
    if form is Form.FLOATING:
        number = f"CASE WHEN abs({x}) < double('Infinity') THEN {number} END"
    return {"numbers": f"count({number})", "mean": f"avg({number})", "m2": f"var_pop({number}) * count({number})"}


def _sketches(form: Form, x: str, parameters: Parameters) -> dict[str, str]:
    if form is Form.OTHER:
        return {}
    times = {
        Form.INTEGER: f"cast({x} AS bigint)",
        Form.DAY: f"cast(unix_date({x}) AS bigint)",
        Form.INSTANT: f"unix_micros({x})",
        Form.LOCAL: f"unix_micros(cast({x} AS timestamp))",
    }
    hashed = {
        **times,
        Form.BOOLEAN: f"cast({x} AS int)",
        Form.DECIMAL: f"cast({x} AS string)",
        Form.FLOATING: f"cast(cast({x} AS double) + 0D AS string)",  # 0 and -0 are one
        Form.TEXT: f"concat('=', {x})",  # the sketch takes no notice of an empty text
        Form.BINARY: f"concat(X'3D', {x})",
    }[form]
    found = {"distinct_state": f"hll_sketch_agg({hashed}, {parameters.distinct})"}
    if form in times:
        found["quantiles_state"] = f"CASE WHEN count({x}) > 0 THEN kll_sketch_agg_bigint({times[form]}, {parameters.quantiles}) END"
    elif form in (Form.DECIMAL, Form.FLOATING):
        number = f"CASE WHEN NOT isnan(cast({x} AS double)) THEN cast({x} AS double) END"
        found["quantiles_state"] = f"CASE WHEN count({number}) > 0 THEN kll_sketch_agg_double({number}, {parameters.quantiles}) END"
    if form is not Form.BINARY:
        value = f"left({x}, {TEXT_LENGTH})" if form is Form.TEXT else f"cast({x} AS string)"
        present = f"{x} IS NOT NULL"
        sketch = f"(approx_top_k_accumulate({value}, {parameters.frequent}) FILTER (WHERE {present})).sketch"
        found["frequent_state"] = f"CASE WHEN count({x}) > 0 THEN {sketch} END"
    return found
