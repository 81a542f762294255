"""Writes deletion vectors: which rows of a file are not there any more.

Belongs here: their form, by Delta's protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Deletion Vectors"). Does not
belong: which rows they name, and the commit that names them (``local_write``). They are read by delta-rs, and by Spark.
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
_AS_Z85 = bytes.maketrans(_B85, _Z85)
"""The protocol has the alphabet of ZeroMQ; Python's functions have another one for the same numbers."""


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
