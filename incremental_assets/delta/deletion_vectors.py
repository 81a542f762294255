"""Writes deletion vectors: which rows of a file are not there any more.

What is in them is read by delta-rs, and by Spark.
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pyroaring import BitMap64

from incremental_assets.delta.store import Folder

_VERSION = b"\x01"
_MAGIC = struct.pack("<I", 1681511377)
"""Marks a bitmap in the portable form of 64-bit Roaring bitmaps."""
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_AS_Z85, _AS_B85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
"""The protocol has the alphabet of ZeroMQ; Python's functions have another one for the same numbers."""
_ENCODED_ID = 20
"""So many characters has the id of a file of vectors, with which its path ends. Before them there may be a folder in that of the table."""


def write_vectors(folder: Folder, deleted: Sequence[np.ndarray]) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Writes one file with a deletion vector for each of these arrays of row numbers, of which none is empty.

    Returns the file's name, and the descriptor of each vector. Raises what ``Folder`` raises.
    """
    id_ = uuid.uuid4()
    name = f"deletion_vector_{id_}.bin"
    encoded = base64.b85encode(id_.bytes).translate(_AS_Z85).decode()
    descriptors: list[Mapping[str, Any]] = []
    content = bytearray(_VERSION)
    for rows in deleted:
        bitmap = BitMap64(rows)
        data = _MAGIC + bitmap.serialize()
        descriptors.append(
            {"storageType": "u", "pathOrInlineDv": encoded, "offset": len(content), "sizeInBytes": len(data), "cardinality": len(bitmap)}
        )
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    folder.put_new(name, bytes(content))
    return name, descriptors


def vector_file(descriptor: Mapping[str, Any]) -> str | None:
    """The name, in the table's folder, of the file that has a vector; None if no file has it. Raises ValueError if it is elsewhere."""
    kind, path = descriptor["storageType"], str(descriptor["pathOrInlineDv"])
    if kind == "i":
        return None
    below, encoded = path[:-_ENCODED_ID], path[-_ENCODED_ID:]
    if kind != "u" or not (below.isalnum() or not below):
        raise ValueError(f"a deletion vector is kept at {path}")
    id_ = uuid.UUID(bytes=base64.b85decode(encoded.encode().translate(_AS_B85)))
    return f"{below}/deletion_vector_{id_}.bin".lstrip("/")
