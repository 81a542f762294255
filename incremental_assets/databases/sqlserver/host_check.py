"""Checks that the certificate of a server is for the host that it was asked for, in the place of python-tds' own check.

python-tds 1.17 reads the names by a function that pyOpenSSL has no longer, so that each connection with TLS would fail.
"""

import ipaddress
from typing import Any


def is_for_host(cert: Any, name: bytes) -> bool:
    """Whether a certificate (of pyOpenSSL) names the host, or its address: an exact name, or ``*`` for its first part.

    Only a certificate without such names counts by its common name.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    found, host = cert.to_cryptography(), name.decode("ascii").lower().rstrip(".")
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return any(_matches(str(one.value), host) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:  # it is a name
        return any(_matches(one, host) for one in names.get_values_for_type(x509.DNSName))


def _matches(pattern: str, host: str) -> bool:
    pattern = pattern.lower().rstrip(".")
    if not pattern.startswith("*."):
        return pattern == host
    _, dot, rest = host.partition(".")
    return bool(dot) and "." in pattern[2:] and rest == pattern[2:]
