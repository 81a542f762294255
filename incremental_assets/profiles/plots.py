"""The plots of a profile, as Plotly's JSON: figures over the partitions of a column, and the distribution of its values.

Plotly interprets some HTML in all of its texts; texts that come from data are escaped here, in ``label``.
"""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from incremental_assets.profiles.column import ColumnProfile, Form, Key, Profile, rows_of

Plot = dict[str, Any]
MOST_PARTITIONS = 1000
"""Plots show at most this many partitions, the newest ones."""
FEW_VALUES = 12
"""Numbers and times with at most this many different values are drawn as bars of these values instead of as a distribution."""

_BLUE, _SOFT, _SOFTER, _RED, _GREEN = "#2f6fb0", "rgba(47,111,176,0.30)", "rgba(47,111,176,0.14)", "#c0503e", "#3f8f5b"
_TICKS = 3
"""The number of labels on the axis of partitions, unless a plot says otherwise."""


def label(text: str, length: int = 28) -> str:
    """Return a text of the data for Plotly: shortened, without unprintable characters, and escaped."""
    plain = "".join(c if c.isprintable() else "�" for c in text)
    return html.escape(plain if len(plain) <= length else plain[: length - 1] + "…", quote=False)


def rows_plot(profile: Profile) -> Plot | None:
    """Return the plot of the number of rows of each partition; None if there is only one partition."""
    shown = _shown(profile)
    if len(shown) < 2:
        return None
    counts = [rows_of(profile.partitions[key]) for key in shown]
    return _over(shown, "rows of each partition", [_bars(shown, counts, _BLUE)], {"rangemode": "tozero"}, ticks=10)


def column_plots(profile: Profile, column: ColumnProfile) -> list[Plot]:
    """Return the plots of a column: over the partitions if there are several, and of the values if there are any."""
    shown = _shown(profile)
    found: list[Plot] = []
    if len(shown) > 1:
        parts = [profile.partitions[key].get(column.column) for key in shown]
        lines = [_line(shown, parts, lambda one: one.null_share, "NULL", _RED)]
        if column.nans:
            lines.append(_line(shown, parts, lambda one: one.nans / one.rows if one.rows else None, "NaN", _GREEN))
        found.append(
            _over(shown, "share of NULL" + (" and NaN" if column.nans else ""), lines, {"tickformat": ".3~p", "rangemode": "tozero"})
        )
        if column.distinct is not None:
            found.append(
                _over(shown, "distinct values", [_line(shown, parts, lambda one: one.distinct, "distinct", _BLUE)], {"rangemode": "tozero"})
            )
        found += _middle(shown, parts, column)
    found += _values(column)
    return found


# ---------------------------------------------------------------- over the partitions
def _middle(shown: Sequence[Key], parts: Sequence[ColumnProfile | None], column: ColumnProfile) -> list[Plot]:
    """Return the plots of where the values of each partition lie."""
    if column.form.is_number:
        band = _band(
            shown, parts, lambda one: _number(one.quantiles.get(0.05)), lambda one: _number(one.quantiles.get(0.95)), _SOFTER, "5 to 95 %"
        )
        inner = _band(
            shown, parts, lambda one: _number(one.quantiles.get(0.25)), lambda one: _number(one.quantiles.get(0.75)), _SOFT, "25 to 75 %"
        )
        return [_over(shown, "mean, and where 50 and 90 % lie", [*band, *inner, _line(shown, parts, lambda one: one.mean, "mean", _BLUE)])]
    if column.form.is_time:
        band = _band(shown, parts, lambda one: one.quantiles.get(0.05), lambda one: one.quantiles.get(0.95), _SOFTER, "5 to 95 %")
        line = _line(shown, parts, lambda one: one.quantiles.get(0.5), "median", _BLUE)
        return [_over(shown, "median, and where 90 % lie", [*band, line], {"type": "date"})]
    if column.lengths is not None:
        band = _band(
            shown,
            parts,
            lambda one: one.lengths and one.lengths.least,
            lambda one: one.lengths and one.lengths.greatest,
            _SOFTER,
            "least to greatest",
        )
        line = _line(shown, parts, lambda one: one.lengths and one.lengths.mean, "mean", _BLUE)
        return [_over(shown, "length: mean, least to greatest", [*band, line])]
    if column.form is Form.BOOLEAN:
        line = _line(shown, parts, _share_of_true, "true", _BLUE)
        return [_over(shown, "share of true", [line], {"tickformat": ".3~p", "range": [-0.02, 1.02]})]
    return []


def _share_of_true(one: ColumnProfile) -> float | None:
    return next((v.count for v in one.frequent if v.value == "true"), 0) / one.values if one.values else None


def _shown(profile: Profile) -> list[Key]:
    return list(profile.partitions)[-MOST_PARTITIONS:]


def _line(
    shown: Sequence[Key], parts: Sequence[ColumnProfile | None], value: Callable[[ColumnProfile], Any], name: str, color: str
) -> Plot:
    # A partition without the column leaves a gap in the line.
    points = [None if one is None else _finite(value(one)) for one in parts]
    alone = len(shown) <= 60
    return {
        "type": "scatter", "x": list(range(len(shown))), "y": points, "name": name, "mode": "lines+markers" if alone else "lines",
        "line": {"color": color, "width": 2}, "marker": {"size": 5, "color": color},
        "customdata": _keys(shown), "hovertemplate": f"%{{customdata}}<br>{name} %{{y}}<extra></extra>",
    }  # fmt: skip


def _band(
    shown: Sequence[Key],
    parts: Sequence[ColumnProfile | None],
    low: Callable[[ColumnProfile], Any],
    high: Callable[[ColumnProfile], Any],
    color: str,
    name: str,
) -> list[Plot]:
    """Return the two lines of a filled band between ``low`` and ``high``."""
    found = [(n, _finite(low(one)), _finite(high(one))) for n, one in enumerate(parts) if one is not None]
    # Plotly cannot fill a band with gaps, so partitions without values are left out.
    found = [point for point in found if point[1] is not None and point[2] is not None]
    edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "x": [n for n, _, _ in found], "hoverinfo": "skip"}
    return [
        {**edge, "y": [value for _, value, _ in found], "showlegend": False},
        {**edge, "y": [value for _, _, value in found], "fill": "tonexty", "fillcolor": color, "name": name},
    ]


def _bars(shown: Sequence[Key], counts: Sequence[int], color: str) -> Plot:
    return {
        "type": "bar", "x": list(range(len(shown))), "y": list(counts), "marker": {"color": color}, "customdata": _keys(shown),
        "hovertemplate": "%{customdata}<br>%{y:,} rows<extra></extra>",
    }  # fmt: skip


def _over(shown: Sequence[Key], title: str, data: list[Plot], y: Mapping[str, Any] | None = None, ticks: int = _TICKS) -> Plot:
    """Return a plot over the partitions, with labels for some of them."""
    step = max(1, -(-len(shown) // ticks))
    at = list(range(0, len(shown), step))
    keys = _keys(shown, 14)
    x = {"tickvals": at, "ticktext": [keys[n] for n in at], "range": [-0.5, len(shown) - 0.5], "zeroline": False}
    return {"data": data, "layout": _layout(title, x, {"rangemode": "normal", **(y or {})})}


def _keys(shown: Sequence[Key], length: int = 60) -> list[str]:
    return ["no partition" if key is None else label(key, length) for key in shown]


# ---------------------------------------------------------------- of the values
def _values(column: ColumnProfile) -> list[Plot]:
    """Return the plot of the values: bars of the most frequent ones, or the distribution of many different numbers or times."""
    counted = bool(column.frequent) and (not (column.form.is_number or column.form.is_time) or (column.distinct or 0) <= FEW_VALUES)
    if counted:
        return [_frequent(column)]
    if column.quantiles and column.distinct != 1:
        return [_distribution(column)]
    return []


def _frequent(column: ColumnProfile) -> Plot:
    top = column.frequent[:FEW_VALUES][::-1]
    bars: Plot = {
        "type": "bar", "orientation": "h", "x": [one.count for one in top], "y": list(range(len(top))), "marker": {"color": _BLUE},
        "customdata": [label(one.value, 60) for one in top], "hovertemplate": "%{customdata}<br>%{x:,} rows<extra></extra>",
    }  # fmt: skip
    ticks = {"tickvals": list(range(len(top))), "ticktext": [label(one.value, 18) or "(empty)" for one in top], "showgrid": False}
    about = "most frequent values" if column.frequent_is_exact else f"most frequent values (± {column.frequent_error:,})"
    return {"data": [bars], "layout": _layout(about, {"rangemode": "tozero"}, ticks)}


def _distribution(column: ColumnProfile) -> Plot:
    """Return the cumulative distribution: which share of the values is at most so large."""
    times = column.form.is_time
    points = [(rank, value if times else _finite(_number(value))) for rank, value in column.quantiles.items()]
    points = [(rank, value) for rank, value in points if value is not None]
    line: Plot = {
        "type": "scatter", "mode": "lines", "x": [value for _, value in points], "y": [rank for rank, _ in points],
        "line": {"color": _BLUE, "width": 2}, "fill": "tozeroy", "fillcolor": _SOFTER,
        "hovertemplate": "%{y:.0%} are at most %{x}<extra></extra>",
    }  # fmt: skip
    x = {"type": "date"} if times else {}
    return {"data": [line], "layout": _layout("distribution: share of values up to …", x, {"tickformat": ".0%", "range": [0, 1.02]})}


# ---------------------------------------------------------------- the layout
def _layout(title: str, x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    axis = {"automargin": True, "gridcolor": "#edf0f3", "linecolor": "#c8d0d8", "zerolinecolor": "#dfe4ea", "tickfont": {"size": 11}}
    return {
        "title": {"text": title, "font": {"size": 13}, "x": 0.03, "y": 0.97, "yanchor": "top"},
        "margin": {"l": 48, "r": 14, "t": 34, "b": 30},
        "font": {"family": "system-ui, sans-serif", "color": "#1d2733"},
        "paper_bgcolor": "#fff", "plot_bgcolor": "#fff", "showlegend": False, "bargap": 0.15, "hovermode": "closest",
        "xaxis": {**axis, "tickangle": 0, **x}, "yaxis": {**axis, **y},
    }  # fmt: skip


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _finite(value: Any) -> Any:
    """Replace infinite values and NaN by None, because JSON has neither."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
