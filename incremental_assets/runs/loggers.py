"""The Dagster loggers of the command line."""

import contextlib
import logging
import sys
from collections.abc import Iterator

import dagster as dg
from dagster import colored_console_logger

from incremental_assets.core.shown_text import PlainFormatter

BRIEF_LOGGER = "brief"
"""The name of the logger in a run's config."""
PLANNED = "planned"
"""Marks the warnings of a plan in the log: the record of the sync has them, too."""
_commands: list[dict[str, bool]] = []
"""The warnings that the log of each command in this process has written, and whether they are a plan's. There is one command at most."""


@contextlib.contextmanager
def warnings_once() -> Iterator[None]:
    """Within the block, which is one command, each warning is written once, however many runs of a container give it."""
    _commands.append({})
    try:
        yield
    finally:
        _commands.pop()


def without_what_the_log_has(container: str, message: str) -> str:
    """The message of a record without those warnings of its plan that the log of this command has written."""
    for warning in [one for command in _commands for one, is_planned in command.items() if is_planned]:
        label, _, text = warning.partition(": ")
        message = message.replace(text, "") if label == container else message
    return "; ".join(part for part in message.split("; ") if part)


class _BriefHandler(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Writes the messages of a run to stderr, a line each. Dagster's own events and stack traces are left to the event log."""

    def emit(self, record: logging.LogRecord) -> None:
        meta = getattr(record, "dagster_meta", {})
        # The checks log their evaluations instead of yielding them (`quality.evaluations`), and Dagster logs a warning about that.
        if not meta.get("dagster_event") and "did not yield or return expected outputs" not in record.getMessage():
            record.msg, record.args = meta.get("orig_message", record.msg), ()
            if not (record.levelno == logging.WARNING and _is_repeated(str(record.msg), getattr(record, PLANNED, False))):
                super().emit(record)


def _is_repeated(warning: str, is_planned: bool) -> bool:
    """Whether this command has written the warning before, which it notes."""
    if not _commands:
        return False
    repeated = warning in _commands[-1]
    _commands[-1].setdefault(warning, is_planned)
    return repeated


@dg.logger({}, description="For the command line: what a run itself says.")
def brief_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """The logger of runs that the command line starts: the run's own messages with the time of day, on stderr."""
    logger = logging.Logger("incremental_assets", logging.INFO)
    handler = _BriefHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    return logger


LOGGERS = {"console": colored_console_logger, BRIEF_LOGGER: brief_logger}
"""All loggers of a code location, by name. Dagster uses ``console`` where a run config names none."""
