"""The page of a container's profile: one HTML file with a table of the columns and plots. It loads nothing from elsewhere.

Names and values come from data. Jinja escapes them in the HTML and in the JSON, and ``plots.label`` escapes them in what Plotly draws. The
page's Content-Security-Policy keeps the browser from loading anything, whatever the data contain.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from incremental_assets.core.shown_text import counted
from incremental_assets.profiles.column import ColumnProfile, Form, Lengths, Profile
from incremental_assets.profiles.plots import MOST_PARTITIONS, Plot, column_plots, rows_plot

_SHORT = 22
"""How many characters of a text are shown in the table."""
_MOST_FREQUENT = 3
PLOTS_MISSING = "The page has no plots, as plotly is not installed; run: pip install 'incremental-assets[profiles]'"


def profile_page(profile: Profile, title: str | None = None, notes: Sequence[str] = ()) -> str:
    """Return the HTML file as text, some 5 MB, most of which is the plotting library. Without plotly, it has the figures alone.

    ``title`` is shown instead of the container's name. ``notes`` are shown above the figures.
    """
    import jinja2
    from markupsafe import Markup

    library = _plotting_library()
    plots: list[Plot] = []

    def drawn(plot: Plot | None) -> int | None:
        if plot is None:
            return None
        plots.append(plot)
        return len(plots) - 1

    rows = [
        {**_row(n, column), "plots": [drawn(plot) for plot in column_plots(profile, column)]} for n, column in enumerate(profile.columns)
    ]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((files("incremental_assets.profiles") / "page.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        title=title or profile.container,
        about=_about(profile),
        notes=[*notes, *_notes(profile), *([] if library else [PLOTS_MISSING])],
        rows=rows,
        rows_plot=drawn(rows_plot(profile)),
        # The library is part of a script element, which a closing tag inside it would end.
        library=None if library is None else Markup(library.replace("</script", "<\\/script")),
        plots=plots,
    )


def has_plots() -> bool:
    """Whether pages have plots: plotly is installed."""
    return importlib.util.find_spec("plotly") is not None


def _plotting_library() -> str | None:
    """The script that draws the plots; None where plotly is not installed."""
    if not has_plots():
        return None
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _about(profile: Profile) -> str:
    partitions = len(profile.partitions)
    parts = [counted(profile.rows, "row"), counted(len(profile.columns), "column")]
    if partitions > 1:
        parts.append(counted(partitions, "partition"))
    if profile.delta_version is not None:
        parts.append(f"version {profile.delta_version:,} of the table")
    if profile.at is not None:
        parts.append(f"profiled {profile.at:%Y-%m-%d %H:%M} UTC")
    return " · ".join(parts)


def _notes(profile: Profile) -> list[str]:
    notes: list[str] = []
    if len(profile.partitions) > MOST_PARTITIONS:
        notes.append(f"The plots show the newest {MOST_PARTITIONS:,} partitions; the table is about all.")
    if profile.left_out:
        columns = ", ".join(profile.left_out)
        keys = dict.fromkeys("no partition" if key is None else key for left in profile.left_out.values() for key in left)
        named = ", ".join(list(keys)[:5]) + (f" and {len(keys) - 5:,} more" if len(keys) > 5 else "")
        notes.append(
            f"Not all partitions are in the figures of {columns}: {named} were profiled when the column had another type, or with other "
            f"parameters. Profile them again."
        )
    return notes


def _row(number: int, column: ColumnProfile) -> dict[str, Any]:
    quantile = column.quantiles.get
    share = column.null_share
    return {
        "name": column.column,
        "anchor": f"column-{number}",
        "type": column.type,
        "null_percent": f"{100 * (share or 0):.4g}",
        "nulls": "" if share is None else _share(share),
        "distinct": "" if column.distinct is None else f"{column.distinct:,}",
        "figures": [
            *(_value(column, text) for text in (column.minimum, column.maximum)),
            *(_number(number) for number in (column.mean, column.deviation)),
            *(_value(column, text) for text in (quantile(0.05), quantile(0.5), quantile(0.95))),
        ],
        "lengths": _lengths(column.lengths),
        "frequent": [
            {**_text(one.value), "share": _share(one.count / column.values)} for one in column.frequent[:_MOST_FREQUENT] if column.values
        ],
    }


def _value(column: ColumnProfile, text: str | None) -> Mapping[str, str]:
    if text is None:
        return {"whole": "", "short": ""}
    if column.form is Form.INTEGER:
        return {"whole": text, "short": f"{int(text):,}"}
    if column.form.is_number:
        return {"whole": text, "short": _plain(float(text))}
    if column.form in (Form.LOCAL, Form.INSTANT):
        return {"whole": text, "short": text.rpartition(":")[0]}
    return _text(text)


def _text(text: str) -> Mapping[str, str]:
    short = text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
    return {"whole": text, "short": short or "(empty)"}


def _number(value: float | None) -> Mapping[str, str]:
    return {"whole": "", "short": ""} if value is None else {"whole": repr(value), "short": _plain(value)}


def _plain(value: float) -> str:
    if value == int(value) if abs(value) < 1e15 else False:
        return f"{int(value):,}"
    return f"{value:,.2f}" if 1000 <= abs(value) < 1e15 else f"{value:.5g}"


def _lengths(lengths: Lengths | None) -> str:
    if lengths is None:
        return ""
    return str(lengths.least) if lengths.least == lengths.greatest else f"{lengths.least} · {lengths.mean:.3g} · {lengths.greatest:,}"


def _share(share: float) -> str:
    """Format a share so that all and none differ from nearly all and nearly none."""
    if share in (0, 1):
        return "100 %" if share else "0 %"
    if share > 0.995:
        return "> 99 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
