"""Sends a message to one destination, by apprise."""

import importlib

from incremental_assets.operations.alerts.messages import Message

NO_APPRISE = "no message is sent, as apprise is not installed. Run: pip install 'incremental-assets[alerts]'"


def send(url: str, message: Message) -> bool:
    """Sends a message. Returns whether the destination has taken it."""
    import apprise

    destination = apprise.Apprise()
    kind = apprise.NotifyType(message.severity.value)
    # The body is plain text: without that word, apprise sends it as HTML in a mail, and as markup in chats, whatever names are in it.
    plain = apprise.NotifyFormat.TEXT
    return destination.add(url) and bool(destination.notify(message.body, message.title, kind, body_format=plain))


def can_send() -> bool:
    """Whether apprise is installed, and can be imported."""
    try:
        importlib.import_module("apprise")
    except ImportError:
        return False
    return True


def is_understood(url: str) -> bool:
    """Whether apprise knows this kind of URL; of none if it is not installed, which the ticks report."""
    if not can_send():
        return True
    import apprise

    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None
