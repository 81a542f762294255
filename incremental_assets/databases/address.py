"""The address of a database, without ever showing a password."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from incremental_assets.core.errors import ConfigurationError

_Address = TypeVar("_Address", bound="DatabaseAddress")


@dataclass(frozen=True)
class DatabaseAddress:
    """The address of a database, and the user and password for it. ``repr`` does not show the password. ``options``: those of the URL."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False, default="")
    options: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])

    @classmethod
    def parsed(
        cls: type[_Address], datastore: str, url: str | None, *, schemes: Sequence[str], port: int, known: Sequence[str]
    ) -> _Address:
        """The address that a URL ``scheme://user:password@host:port/database?option=value`` names. ``datastore``: its name, for messages.

        ``schemes``: the first one is that of the messages. ``port``: if the URL has none. ``known``: the names of the options. Raises
        ConfigurationError.
        """
        wanted = f"{datastore}: url is not {schemes[0]}://user:password@host:port/database"
        if not url:
            raise ConfigurationError(f"{datastore}: url is empty; is the environment variable set that it refers to?")
        if not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise ConfigurationError(f"{wanted}.")
        try:
            parts = urlsplit(url)
            port = parts.port or port
        except ValueError:  # its message may repeat the end of a password
            raise ConfigurationError(f"{wanted}; special characters in the password are written as %XX (@ as %40, / as %2F).") from None
        user, database = unquote(parts.username or ""), unquote(parts.path.lstrip("/"))
        if not user or not database or "/" in parts.path.lstrip("/"):
            missing = "the user" if not user else "the database"
            raise ConfigurationError(f"{wanted}: {missing} is missing; special characters in the password are written as %XX (@ as %40).")
        options = dict(parse_qsl(parts.query))
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ConfigurationError(f"{datastore}: url has the option {unknown[0]!r}, which is not known here: {', '.join(known)} are.")
        return cls(parts.hostname or "localhost", port, database, user, unquote(parts.password or ""), options)
