"""The attributes of the YAML that are cron expressions."""

from dagster._utils.schedules import is_valid_cron_schedule

from incremental_assets.core.errors import ConfigurationError


def checked_cron(label: str, attribute: str, text: str | None) -> str | None:
    """The cron expression as it is; None: there is no schedule. ``label``: the datastore's or container's name, for messages.

    Raises ConfigurationError for a text that Dagster would refuse.
    """
    if text is not None and not is_valid_cron_schedule(text):
        raise ConfigurationError(
            f"{label}: {attribute} is {text!r}, which is no cron expression. Write five fields (minute, hour, day, month, weekday): "
            f'"0 3 * * *" is each day at three in the morning, in UTC.'
        )
    return text
