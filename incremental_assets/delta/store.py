"""Puts objects into the store that holds the lake: a folder of a disk, or an object store.

Belongs here: what the safety of a lake's commits asks of its store. Does not belong: what the objects say (``lease``), and the tables that
delta-rs and Spark write.
"""

from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, from_url


def has_objects(address: str) -> bool:
    """Whether the object store has any object below this address. Raises obstore's BaseError if it cannot be listed."""
    return any(obstore.list(from_url(address), chunk_size=1))


def refuses_to_replace(address: str, name: str) -> bool:
    """Whether the store refuses a new object of a name that it has: only then are the commits of two hosts kept apart.

    ``address``: ``LakeTable.address``. ``name``: that of an object below it, which is put for this and stays. Raises obstore's BaseError if
    the store cannot be written.
    """
    store = from_url(address) if urlsplit(address).scheme else LocalStore(address)
    for _ in range(2):  # the first one is refused where the object is there from an earlier time, which answers the question as well
        try:
            obstore.put(store, name, b"Put twice, to see that the store refuses it the second time.\n", mode="create")
        except AlreadyExistsError:
            return True
    return False
