"""Names in keys and paths: their encoding is readable, reversible, and uses few characters.

Belongs here: the encoding of names, and the names that an error proposes. Does not belong: keys of files (``test_model_files``).
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from incremental_assets.core.names import backticked, decode_name, encode_name, file_name, nearest

# Names that look like encoded ones are the most likely to fail, so they are drawn often.
names = st.text() | st.lists(st.sampled_from(["_", "U", "_U", "_U5F_", "20", "5F", "F", "a", " ", "é", "_U20_"])).map("".join)


@given(names)
def test_an_encoded_name_decodes_to_itself(name: str) -> None:
    """Otherwise the UI and ``watermarks`` show a table that does not exist, or sync into one that nobody finds again."""
    encoded = encode_name(name)
    if "_U110000_" not in encoded:
        assert decode_name(encoded) == name
    else:
        assert name.startswith(decode_name(encoded)) and len(name) > 20


@given(names)
def test_encoded_names_use_only_letters_digits_and_underscores(name: str) -> None:
    """Otherwise Dagster refuses the asset key, or a slash in a table's name writes outside the lake's folder."""
    assert re.fullmatch(r"[A-Za-z0-9_]*", encode_name(name))


@settings(deadline=None)
@given(names, st.integers(0, 300), st.sampled_from(['"', "é", "🙂", "a", "_", "_U", "_U22_"]))
def test_a_name_is_never_too_long_for_a_folder(name: str, times: int, much: str) -> None:
    """Otherwise a table whose name has many characters that are encoded cannot be synced: "File name too long"."""
    long = [name + much * times, name + much * times + "x"]
    encoded = [encode_name(one) for one in long]
    assert all(len(one) <= 255 and re.fullmatch(r"[A-Za-z0-9_]*", one) for one in encoded)
    assert encoded[0] != encoded[1] and encode_name(encoded[0]) != encode_name(encoded[1])
    for ending in (".lock", ".scan.lock", ".html"):
        files = [file_name((one, one), ending) for one in encoded]
        assert files[0] != files[1] and all(len(one) <= 255 for one in files)


@given(names, names)
def test_two_names_never_share_a_key(one: str, other: str) -> None:
    """Otherwise two containers overwrite each other's Delta table."""
    assert (encode_name(one) == encode_name(other)) == (one == other)


@given(st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True).filter(lambda name: not re.search("_U[0-9A-F]", name)))
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    """Otherwise everybody's keys and folders are unreadable for the sake of a few."""
    assert encode_name(name) == name


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("order items", "order_U20_items"),
        ("a.b", "a_U2E_b"),
        ("straße", "stra_UDF_e"),
        ("a_U20_b", "a_U5F_U20_b"),
        ("../x", "_U2E__U2E__U2F_x"),
    ],
)
def test_the_encoding_is_fixed(name: str, encoded: str) -> None:
    """Changing it would leave existing tables behind under their old names, and load everything again."""
    assert encode_name(name) == encoded


def test_nearest_names_first() -> None:
    """Otherwise a misspelt table or column leaves the user without a hint."""
    assert nearest("ordrs", ["customer", "Orders", "order_lines"]).startswith(" Nearest: Orders")
    assert nearest("zzz", ["b", "a"]) == " Known: a, b."
    assert nearest("zzz", []) == ""


def test_a_backtick_in_a_name_ends_no_quotation() -> None:
    """Otherwise a table named with a backtick breaks every statement, or becomes part of one."""
    assert backticked("a`b c") == "`a``b c`"
