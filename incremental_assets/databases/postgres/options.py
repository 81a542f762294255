"""Translates libpq's connection options for Spark's JDBC driver, so that TLS and authentication are the same for plans and rows.

libpq also reads ``PG*`` environment variables and files in ``~/.postgresql``, which the JDBC driver does not know. Their values are looked
up once, here, and passed to both by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from psycopg import pq

from incremental_assets.core.errors import ConfigurationError


class Use(Enum):
    """What is done with an option."""

    ADDRESS = "part of the address"
    BOTH = "psycopg and the JDBC driver get it"
    PLAN = "psycopg alone gets it: it changes neither what is read nor who may listen"
    OURS = "always as this program sets it"
    REFUSED = "the JDBC driver has nothing of the kind"


@dataclass(frozen=True)
class Rule:
    """What is done with one of libpq's options.

    ``jdbc``: the name of the driver's property. ``values``: the driver's names for libpq's values; values that are not listed have the same
    name. ``only``: for a refused option, the values that are accepted all the same, because both sides can have them.
    ``instead``: what the user can do if the option is refused.
    """

    use: Use
    jdbc: str = ""
    values: Mapping[str, str] | None = None
    only: tuple[str, ...] = ()
    instead: str = "Leave it out."


_ADDRESS, _PLAN, _OURS = Rule(Use.ADDRESS), Rule(Use.PLAN), Rule(Use.OURS)
_SESSIONS = {"read-write": "primary", "read-only": "secondary", "standby": "secondary", "prefer-standby": "preferSecondary"}
_NO_CRL = "Leave it out, and let the certificate authority issue certificates that expire soon instead."

RULES: Mapping[str, Rule] = {
    "host": _ADDRESS,
    "port": _ADDRESS,
    "dbname": _ADDRESS,
    "user": _ADDRESS,
    "password": _ADDRESS,
    "passfile": _PLAN,  # libpq finds the password there, and the readers get the password of its connection
    "service": Rule(Use.REFUSED, instead="Write what the service's section says into the url."),
    "hostaddr": Rule(Use.REFUSED, instead="Write the host that both are to connect to into the url."),
    # ---- TLS
    "sslmode": Rule(Use.BOTH, "sslmode"),
    "sslnegotiation": Rule(Use.BOTH, "sslNegotiation"),
    "sslrootcert": Rule(Use.BOTH, "sslrootcert", instead="Name the file of the authorities, such as /etc/ssl/certs/ca-certificates.crt."),
    "sslcert": Rule(Use.BOTH, "sslcert"),
    "sslkey": Rule(Use.BOTH, "sslkey"),
    "sslpassword": Rule(Use.BOTH, "sslpassword"),
    "sslcertmode": Rule(Use.REFUSED, only=("allow",)),
    "sslcrl": Rule(Use.REFUSED, instead=_NO_CRL),
    "sslcrldir": Rule(Use.REFUSED, instead=_NO_CRL),
    "sslsni": Rule(Use.REFUSED, only=("1",)),
    "sslcompression": _PLAN,  # OpenSSL has no compression any more
    "ssl_min_protocol_version": Rule(
        Use.REFUSED, only=("TLSv1", "TLSv1.1", "TLSv1.2"), instead="Set ssl_min_protocol_version in the server's configuration."
    ),
    "ssl_max_protocol_version": _PLAN,  # the readers may use a newer one
    "sslkeylogfile": Rule(Use.REFUSED),
    # ---- authentication
    "channel_binding": Rule(Use.BOTH, "channelBinding"),
    "require_auth": Rule(Use.BOTH, "requireAuth"),
    "gssencmode": Rule(Use.BOTH, "gssEncMode"),
    "krbsrvname": Rule(Use.BOTH, "kerberosServerName"),
    "gsslib": Rule(Use.BOTH, "gsslib"),
    "gssdelegation": Rule(Use.REFUSED, only=("0",)),
    "requirepeer": _PLAN,  # it is for Unix sockets, which are refused as a host
    "scram_client_key": Rule(Use.REFUSED, instead="Write the password."),
    "scram_server_key": Rule(Use.REFUSED, instead="Write the password."),
    "oauth_issuer": Rule(Use.REFUSED),
    "oauth_client_id": Rule(Use.REFUSED),
    "oauth_client_secret": Rule(Use.REFUSED),
    "oauth_scope": Rule(Use.REFUSED),
    # ---- the choice of the server, and the session there
    "target_session_attrs": Rule(Use.BOTH, "targetServerType", values=_SESSIONS),
    "load_balance_hosts": _PLAN,  # the readers connect to the host that the plan's connection has found
    "options": Rule(Use.BOTH, "options"),
    "replication": Rule(Use.REFUSED),
    "min_protocol_version": Rule(Use.REFUSED, only=("3.0",)),
    "max_protocol_version": _PLAN,
    # ---- time-outs, encoding and names
    "connect_timeout": Rule(Use.BOTH, "connectTimeout"),
    "keepalives": _PLAN,  # the readers have tcpKeepAlive and socketTimeout instead, as ``connection`` and ``session`` set them
    "keepalives_idle": _PLAN,
    "keepalives_interval": _PLAN,
    "keepalives_count": _PLAN,
    "tcp_user_timeout": _PLAN,
    "client_encoding": _OURS,  # UTF-8, which the driver uses with every server, too
    "application_name": _OURS,
    "fallback_application_name": _OURS,
}
"""The rules by libpq's name of the option. An option that is not listed is refused."""


def resolved(datastore: str, given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options that are in effect: those of the URL, then those of the environment, then the files that libpq would use by default.

    ``given``: the options of the URL. Raises ConfigurationError for an option that the JDBC driver does not have, because it would then
    hold for the plan's connection only.
    """
    found = {name: value for name, value in given.items() if value}
    origin = {name: f"url has {name}" for name in found}
    for option in pq.Conninfo.get_defaults():
        name, variable = option.keyword.decode(), option.envvar.decode() if option.envvar else ""
        value = environment.get(variable, "")
        if variable and value and name not in found and RULES.get(name, Rule(Use.REFUSED)).use is not Use.ADDRESS:
            found[name], origin[name] = value, f"the environment variable {variable} is set to"
    if environment.get("PGREQUIRESSL") == "1":  # an obsolete variable that libpq still accepts
        found.setdefault("sslmode", "require")
    for name, value in found.items():
        rule = RULES.get(name, Rule(Use.REFUSED))
        refused = rule.use is Use.REFUSED and value not in rule.only
        if refused or (name == "sslrootcert" and value == "system"):
            shown = "a value" if name in _SECRET else repr(value)
            raise ConfigurationError(
                f"{datastore}: {origin[name]} {shown}, which Spark's JDBC driver cannot do: {name} would hold for the plan and not for "
                f"the rows. {rule.instead}"
            )
    return _with_files(datastore, {n: v for n, v in found.items() if n in RULES and RULES[n].use in (Use.BOTH, Use.PLAN)})


_SECRET = ("sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key", "password")


def jdbc_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The properties of the JDBC driver for these options of libpq."""
    found: dict[str, str] = {}
    for name, value in options.items():
        rule = RULES[name]
        if rule.use is Use.BOTH:
            found[rule.jdbc] = (rule.values or {}).get(value, value)
    if found.get("sslmode") == "require" and "sslrootcert" in found:
        found["sslmode"] = "verify-ca"  # with a root certificate, libpq verifies the server in the mode "require", too; the driver does not
    if found.get("connectTimeout", "").startswith("-"):
        found["connectTimeout"] = "0"  # a negative number means no time-out to libpq; the driver expects 0 for that
    return found


def _with_files(datastore: str, options: dict[str, str]) -> dict[str, str]:
    """The options, with the names of those certificate files that libpq would use by default.

    The driver has defaults of its own, and Spark may run as another user. Raises ConfigurationError if libpq would use a list of revoked
    certificates, which the driver cannot read.
    """
    folder = Path.home() / ".postgresql"
    if options.get("sslmode") == "disable":
        return options
    if _is_there(folder / "root.crl"):
        raise ConfigurationError(f"{datastore}: libpq takes {folder / 'root.crl'}, which Spark's JDBC driver cannot read. {_NO_CRL}")
    defaults = {"sslrootcert": folder / "root.crt"}
    if "sslcert" not in options and _is_there(folder / "postgresql.crt"):
        defaults |= {"sslcert": folder / "postgresql.crt", "sslkey": folder / "postgresql.key"}
    elif "sslcert" in options:
        defaults |= {"sslkey": folder / "postgresql.key"}
    for name, path in defaults.items():
        if name not in options and _is_there(path):
            options[name] = str(path)
    return options


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
