"""The Dagster loggers of the command line.

Belongs here: how a run's messages are written to a terminal. Does not belong: which messages there are.
"""

import logging
import sys

import dagster as dg
from dagster import colored_console_logger

from incremental_assets.core.shown_text import PlainFormatter

BRIEF_LOGGER = "brief"
"""The name of the logger in a run's config."""


class _BriefHandler(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Writes the messages of a run to stderr, a line each. Dagster's own events and stack traces are left to the event log."""

    def emit(self, record: logging.LogRecord) -> None:
        meta = getattr(record, "dagster_meta", {})
        # The checks log their evaluations instead of yielding them (`quality.evaluations`), and Dagster logs a warning about that.
        if not meta.get("dagster_event") and "did not yield or return expected outputs" not in record.getMessage():
            record.msg, record.args = meta.get("orig_message", record.msg), ()
            super().emit(record)


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
