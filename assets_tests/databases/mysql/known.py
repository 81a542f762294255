"""Types of MariaDB, each with literals and with what the lake has of them.

Belongs here: these values. Does not belong: the tests that write and read them.
"""

import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

UTC = timezone.utc


def as_float(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


VALUES: dict[str, list[tuple[str, Any]]] = {
    "tinyint": [("-128", -128), ("127", 127)],
    "tinyint unsigned": [("255", 255)],
    "tinyint(1)": [("2", 2)],
    "smallint": [("-32768", -32768)],
    "smallint unsigned": [("65535", 65535)],
    "mediumint": [("-8388608", -8388608)],
    "mediumint unsigned": [("16777215", 16777215)],
    "int": [("-2147483648", -2147483648)],
    "int unsigned": [("4294967295", 4294967295)],
    "int(8) zerofill": [("42", 42)],
    "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    "bigint unsigned": [("18446744073709551615", Decimal(2**64 - 1)), ("0", Decimal(0))],
    "bit": [("b'1'", True), ("b'0'", False)],
    "bit(20)": [("b'11111111111111111111'", 2**20 - 1)],
    "bit(64)": [("0xffffffffffffffff", Decimal(2**64 - 1))],
    "year": [("0", 0), ("2155", 2155)],
    "decimal(38,10)": [("-1234567890123456789012345678.0123456789", Decimal("-1234567890123456789012345678.0123456789"))],
    "decimal(10,2) zerofill": [("12.5", Decimal("12.50"))],
    "decimal(65,30)": [("12345678901234567890123456789012345.123456789012345678901234567890",
                        "12345678901234567890123456789012345.123456789012345678901234567890")],
    "float": [("0.1", as_float(0.1)), ("1.17549e-38", as_float(1.17549e-38)), ("16777215", 16777215.0)],
    "float(7,4)": [("123.4567", as_float(123.4567))],
    "double": [("0.1", 0.1), ("1.7976931348623157e308", 1.7976931348623157e308), ("4.9e-324", 5e-324), ("1e15", 1e15)],
    "double(20,3)": [("1234567.125", 1234567.125)],
    "date": [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31)), ("'1582-10-10'", date(1582, 10, 10))],
    "datetime": [("'2024-02-29 23:59:59'", datetime(2024, 2, 29, 23, 59, 59))],
    "datetime(6)": [("'1000-01-01 00:00:00.000001'", datetime(1000, 1, 1, 0, 0, 0, 1)),
                    ("'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
                    ("'2024-03-31 02:30:00'", datetime(2024, 3, 31, 2, 30))],  # an hour that many zones do not have
    "timestamp(6) null": [("'1970-01-01 00:00:01.5'", datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
                          ("'2038-01-19 03:14:07.999999'", datetime(2038, 1, 19, 3, 14, 7, 999999, UTC))],
    "time(6)": [("'-838:59:59'", "-838:59:59.000000"), ("'12:34:56.123456'", "12:34:56.123456")],
    "char(5)": [("'ab '", "ab")],
    "varchar(50)": [("'ü😀  '", "ü😀  "), ("''", ""), ("'a\\\\b\\'c\"'", "a\\b'c\"")],
    "varchar(50) character set latin1": [("'café €'", "café €")],
    "varchar(50) character set utf16": [("'𝄞x'", "𝄞x")],
    "longtext": [("repeat('é', 70000)", "é" * 70000)],
    "enum('a','ö')": [("'ö'", "ö")],
    "set('a','b','c')": [("'a,c'", "a,c"), ("''", "")],
    "json": [("'{\"a\": [1, 2.50]}'", '{"a": [1, 2.50]}')],
    "binary(4)": [("x'00ff'", b"\x00\xff\x00\x00")],
    "varbinary(10)": [("x'00ff27'", b"\x00\xff'")],
    "longblob": [("repeat(x'ff', 70000)", b"\xff" * 70000)],
    "uuid": [("'123e4567-e89b-12d3-a456-426614174000'", "123e4567-e89b-12d3-a456-426614174000")],
    "inet6": [("'2001:db8::1'", "2001:db8::1")],
}  # fmt: skip
