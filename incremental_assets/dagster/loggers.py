"""What a run says on a terminal.

Belongs here: Dagster loggers. Does not belong: what is logged.
"""

import logging
import sys

import dagster as dg
from dagster import colored_console_logger

BRIEF_LOGGER = "brief"


class _BriefHandler(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """What a run itself says, a line each, on stderr; Dagster's own events and stack traces stay in the event log."""

    def emit(self, record: logging.LogRecord) -> None:
        meta = getattr(record, "dagster_meta", {})
        # Checks log their evaluations and yield nothing, which Dagster remarks upon.
        if not meta.get("dagster_event") and "did not yield or return expected outputs" not in record.getMessage():
            record.msg, record.args = meta.get("orig_message", record.msg), ()
            super().emit(record)


@dg.logger({}, description="For the command line: what a run itself says.")
def brief_logger(context: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("incremental_assets", logging.INFO)
    handler = _BriefHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    return logger


LOGGERS = {"console": colored_console_logger, BRIEF_LOGGER: brief_logger}
