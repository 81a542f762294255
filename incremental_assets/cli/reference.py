"""The page docs/cli.md, made from the command line itself: ``python -m incremental_assets.cli.reference`` writes it."""

import re
from pathlib import Path
from typing import Any

import typer

from incremental_assets.cli import app

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md"
_HEAD = """\
<!-- Made by `python -m incremental_assets.cli.reference` from the help texts of the commands; a test compares. Do not edit. -->
# The command line

    incremental-assets [--project DIR] [--version] COMMAND …

The project is the nearest one upwards from the working directory, or the one that `--project DIR` names; that option may stand before or
after the command. `incremental-assets COMMAND --help` prints what is below. What `--json` prints is described in [json.md](json.md).

## Exit codes

| code | meaning |
| --- | --- |
| 0 | nothing failed |
| 1 | a container failed, `audit` found a difference, or `scan` a broken rule of severity `error`; the others were processed all the same |
| 2 | wrong usage or configuration; nothing ran |
| 130 | interrupted, after the running queries were cancelled |

Which rules lead to which code: [quality](quality.md#exit-codes).
"""


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    panels: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        panels.setdefault(command.rich_help_panel or "", []).append(name)
    overview = ["## Commands", "", "| command | what it does |", "| --- | --- |"]
    overview += [f"| [`{name}`](#{name}) | {_first(group.commands[name])} |" for names in panels.values() for name in names]
    sections = [_command(name, group.commands[name]) for names in panels.values() for name in names]
    return "\n\n".join([_HEAD.rstrip(), "\n".join(overview), *sections]) + "\n"


def _first(command: Any) -> str:
    """What its help says first."""
    return _escaped(_paragraphs(command)[0])


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(part.split()) for part in (command.help or "").split("\n\n") if part.strip()]


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if not _is_option(one)]
    options = [one for one in command.params if _is_option(one)]
    usage = " ".join(["incremental-assets", name, *(["[OPTIONS]"] if options else []), *(_usage(one) for one in arguments)])
    parts = [f"## {name}", f"    {usage}", *map(_escaped, _paragraphs(command))]
    if command.epilog:
        _, *shown = command.epilog.split("\n\n")
        longest = max(len(one.partition("  # ")[0]) for one in shown)
        parts.append("\n".join("    {}  # {}".format(one.partition("  # ")[0].ljust(longest), one.partition("  # ")[2]) for one in shown))
    rows = [f"| `{_cell(one.metavar or one.name)}` | {_escaped(one.help or '')} |" for one in arguments]
    rows += [f"| {_names(one)} | {_escaped(one.help or '')}{_default(one)}{_repeated(one)} |" for one in options]
    if rows:
        parts.append("\n".join(["| argument, option | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def _is_option(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def _usage(argument: Any) -> str:
    shown = argument.metavar or str(argument.name).upper()
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar}"
    names = [*(f"`{_cell(name + value)}`" for name in option.opts), *(f"`{name}`" for name in option.secondary_opts)]
    return ", ".join(names)


def _default(option: Any) -> str:
    return "" if option.is_flag or option.default is None else f" Default: `{option.default}`."


def _repeated(option: Any) -> str:
    return " May be given several times." if getattr(option, "multiple", False) else ""


def _escaped(text: str) -> str:
    """Options and commands within a help text as code."""
    return _cell(re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)", r"`\1`", text))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
