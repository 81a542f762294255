"""Files as partitions: their keys, which of them a sync reads, globs, and which files become one container.

Belongs here: these decisions, with invented paths. Does not belong: real folders (``test_file_listing``) and the content of files
(``test_file_reading``).
"""

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.file_groups import FileGroup, group_files
from incremental_assets.core.files import (
    LONGEST_KEY,
    ComparedFiles,
    FileFormat,
    FileStamp,
    compare_files,
    decode_path,
    encode_path,
    format_of,
    is_hidden,
)
from incremental_assets.core.globs import PatternReach, fixed_part, matches, owner_of

# Linux accepts all bytes except NUL and the slash in a name. Names that look like encoded ones are drawn often.
pieces = st.sampled_from([b".", b"..", b"...", b"/", b"%", b"%2E", b"~", b" ", b"\n", b"'", b'"', b"a", b"|", b"\xff", b"\xc3", b"\xa9"])
paths = (st.binary() | st.lists(pieces).map(b"".join) | st.integers(90, 150).map(lambda n: b"long \xf0\x9f\x98\x80" * n)).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


# ---------------------------------------------------------------- formats
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", FileFormat.CSV),
        ("x/A.CSV", FileFormat.CSV),
        ("a.tsv.gz", FileFormat.TSV),
        ("a.json", FileFormat.JSON),
        ("a.jsonl.zst", FileFormat.JSON),
        ("a.ndjson", FileFormat.JSON),
        ("a.snappy.parquet", FileFormat.PARQUET),
        ("a.avro", FileFormat.AVRO),
        ("a.txt.bz2", FileFormat.TEXT),
        ("a.parquet.gz", None),
        ("a.csv.zip", None),
        ("a.csv\n", None),
        ("a.cſv", None),
        ("x.csv/readme", None),
        ("csv", None),
        ("x/.csv", None),
        ("a.gz", None),
    ],
)
def test_the_format_follows_from_the_extension(name: str, expected: FileFormat | None) -> None:
    """Otherwise files are read in another format than their own, or are not found."""
    assert format_of(name) is expected


@pytest.mark.parametrize(
    ("path", "hidden"),
    [("_SUCCESS", True), ("a/_temporary/0/x.csv", True), (".git/x.txt", True), ("a/.x.csv.part", True), ("a_b/x_.csv", False)],
)
def test_markers_and_unfinished_files_are_hidden(path: str, hidden: bool) -> None:
    """Otherwise the half-written files of a job become rows."""
    assert is_hidden(path) is hidden


# ---------------------------------------------------------------- partition keys
@given(paths)
def test_a_key_decodes_to_its_path(path: str) -> None:
    """Otherwise a partition that is refreshed in the UI names a file that does not exist, or another one."""
    key = encode_path(path)
    assert decode_path(key) == (None if "~" in key else path)


@given(paths)
def test_keys_have_only_characters_that_dagster_accepts(path: str) -> None:
    """Otherwise a key is taken for a range, does not fit Dagster's column, or needs quotes somewhere."""
    key = encode_path(path)
    assert re.fullmatch(r"(?:[A-Za-z0-9_\-./=+,@]|%[0-9A-F]{2})*(?:~[0-9a-f]{32})?", key)
    assert ".." not in key and "//" not in key
    assert not key.startswith(("/", ".")) and not key.endswith(("/", "."))
    assert len(key) <= LONGEST_KEY


@given(paths, paths)
def test_two_files_never_share_a_key(one: str, other: str) -> None:
    """Otherwise the rows of one file replace those of another."""
    assert (encode_path(one) == encode_path(other)) == (one == other)


@pytest.mark.parametrize("suffix", ["a", "b", "%", "\udcff"])
def test_long_paths_that_begin_alike_have_keys_of_their_own(suffix: str) -> None:
    """Otherwise, of files deep down, only one would be loaded."""
    path = "folder/" * 100 + "ü"
    assert encode_path(path + suffix) != encode_path(path + "c")
    assert decode_path(encode_path(path + suffix)) is None


@given(st.text() | st.from_regex(r"(?:[a-z./~]|%[0-9a-fA-F]{0,2})*", fullmatch=True))
def test_a_text_that_is_no_key_names_no_file(text: str) -> None:
    """Otherwise one file has several partitions, or a mistyped key means some file."""
    path = decode_path(text)
    assert path is None or encode_path(path) == text


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("sales/2024/orders_2024-01-01.csv", "sales/2024/orders_2024-01-01.csv"),
        ("year=2024/a+b,c@d.csv.gz", "year=2024/a+b,c@d.csv.gz"),
        ("order items.csv", "order%20items.csv"),
        ("straße.csv", "stra%C3%9Fe.csv"),
        ("a...b.csv", "a.%2E%2Eb.csv"),
        ("../x.", "%2E%2E/x%2E"),
        ("/a//b/", "%2Fa/%2Fb%2F"),
        ("100%~\n.csv", "100%25%7E%0A.csv"),
        ("\udcff.csv", "%FF.csv"),
    ],
)
def test_the_encoding_is_fixed(path: str, key: str) -> None:
    """Changing it would load every file again under another key, beside its old rows."""
    assert encode_path(path) == key


def test_the_encoding_of_long_paths_is_fixed() -> None:
    """Long keys must stay the same as well, and a shortened key must not end within a %XX."""
    assert encode_path("ab" + "é" * 100) == "ab" + "%C3%A9" * 49 + "%C3" + "~af396300eca175bb0ed876f6246e3bb8"


# ---------------------------------------------------------------- which files are read
def stamp(modified: int, size: int = 1, etag: str | None = None) -> FileStamp:
    return FileStamp(modified, size, etag)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (FileStamp(5, 1, "a"), True),
        (FileStamp(5, 1, None), True),
        (FileStamp(5, 1, "b"), False),
        (FileStamp(6, 1, "a"), False),
        (FileStamp(5, 2, "a"), False),
    ],
)
def test_a_change_shows_in_time_size_or_etag(other: FileStamp, same: bool) -> None:
    """Otherwise a file that was replaced keeps its old rows, or all files are read again once the file system begins to report etags."""
    assert FileStamp(5, 1, "a").same(other) is same and other.same(FileStamp(5, 1, "a")) is same


def test_a_file_is_compared_with_its_own_last_state() -> None:
    """Otherwise a file that arrives late with an old time is never read."""
    known = {"old": stamp(50), "rewritten": stamp(60), "gone": stamp(70), "touched back": stamp(80)}
    found = {"old": stamp(50), "rewritten": stamp(90), "late": stamp(3), "touched back": stamp(8), "now": stamp(995)}
    plan = compare_files(found, known, now=1000, settle=10)
    assert plan == ComparedFiles(due=("touched back", "rewritten", "late"), waiting=("now",), recent=1, gone=("gone",))


def test_a_clock_that_is_far_ahead_holds_no_file_back() -> None:
    """Otherwise files from a machine with a wrong clock are loaded years later."""
    plan = compare_files({"ahead": stamp(5000), "a little ahead": stamp(1009)}, {}, now=1000, settle=10)
    assert plan.due == ("ahead",) and plan.waiting == ("a little ahead",)


def test_a_refresh_reads_just_what_was_asked_for() -> None:
    """Otherwise *Materialize* on one partition reads others, or not the one that was asked for."""
    found = {"a": stamp(1), "b": stamp(2), "c": stamp(3), "just written": stamp(999)}
    plan = compare_files(
        found, {"a": stamp(1), "b": stamp(1), "gone": stamp(0)}, now=1000, settle=10, requested=["a", "just written", "gone"]
    )
    assert plan == ComparedFiles(due=("a", "just written"), waiting=(), recent=0, gone=("gone",))


def test_the_oldest_files_are_read_first_up_to_the_limit() -> None:
    """Otherwise a full landing folder is one run that never ends, or the files that have waited longest wait for ever."""
    plan = compare_files({"c": stamp(1), "a": stamp(3), "b": stamp(2), "d": stamp(4)}, {"b": stamp(0)}, now=1000, settle=0, most=2)
    assert plan == ComparedFiles(due=("b", "c"), waiting=("a", "d"), recent=0, gone=())


stamps = st.builds(FileStamp, st.integers(0, 30), st.integers(0, 2), st.sampled_from([None, "x", "y"]))
folders = st.dictionaries(st.sampled_from("abcdefgh"), stamps)


@given(folders, folders, st.integers(0, 30), st.integers(0, 10), st.none() | st.integers(0, 5))
def test_each_file_is_in_one_state(
    found: dict[str, FileStamp], known: dict[str, FileStamp], now: int, settle: int, most: int | None
) -> None:
    """Otherwise a file is read twice in one commit, or overlooked without a word."""
    plan = compare_files(found, known, now, settle, most=most)
    unchanged = {path for path, one in found.items() if path in known and one.same(known[path])}
    states = [*plan.due, *plan.waiting, *unchanged]
    assert len(states) == len(set(states)) == len(found)
    assert set(plan.gone) == set(known) - set(found)
    changed, new = [path for path in plan.due if path in known], [path for path in plan.due if path not in known]
    assert list(plan.due) == changed + new
    recent, later = plan.waiting[: plan.recent], plan.waiting[plan.recent :]
    assert all(abs(now - found[path].modified) < settle for path in recent)
    for part, of in ((changed, found), (new, found), (recent, found), (later, found), (plan.gone, known)):
        assert list(part) == sorted(part, key=lambda path: (of[path].modified, path))
    assert len(plan.due) <= most if most is not None else not later
    assert all(found[one].modified <= found[other].modified for one in plan.due for other in later)


@given(folders)
def test_repeated_syncs_read_every_file(found: dict[str, FileStamp]) -> None:
    """Otherwise some file is left to the next sync each time."""
    known: dict[str, FileStamp] = {}
    for _ in range(len(found)):
        known |= {path: found[path] for path in compare_files(found, known, 10_000, 5, most=1).due}
    assert known == found
    assert compare_files(found, known, 10_000, 5) == ComparedFiles((), (), 0, ())


# ---------------------------------------------------------------- globs
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "x/a.csv", False),
        ("*.csv", "a.CSV", False),
        ("*.csv", "a.csv\n", False),
        ("*.csv", "a\nb.csv", True),
        ("sales/**/orders_*.csv", "sales/orders_1.csv", True),
        ("sales/**/orders_*.csv", "sales/2024/01/orders_1.csv", True),
        ("sales/**/orders_*.csv", "other/orders_1.csv", False),
        ("**/a/**/b.csv", "x/a/a/y/b.csv", True),
        ("**/a/**/b.csv", "x/y/b.csv", False),
        ("a/**", "a/b/c.csv", True),
        ("a/**", "a", False),
        ("**", "a/b.csv", True),
        ("a/**/b/**", "a/b", False),
        ("a?.csv", "ab.csv", True),
        ("a?b.csv", "a/b.csv", False),
        ("[ab].csv", "b.csv", True),
        ("[!ab].csv", "b.csv", False),
        ("a[!b]c.csv", "a/c.csv", False),
        ("a[[]1].csv", "a[1].csv", True),
        ("a[1].csv", "a[1].csv", False),
        ("a[.csv", "a[.csv", True),
        ("[].csv", "[].csv", True),
        ("a[*].csv", "a*.csv", True),
        ("a[*].csv", "ab.csv", False),
        ("\udcff*.csv", "\udcff1.csv", True),
    ],
)
def test_a_glob_matches_exactly_the_paths_it_describes(pattern: str, path: str, expected: bool) -> None:
    """Otherwise a container reads files that were not meant, or misses some."""
    assert matches(pattern, path) is expected


def test_matching_takes_no_exponential_time() -> None:
    """Otherwise one file in the landing folder stops the sensor."""
    begun = time.monotonic()
    assert not matches("**/*_*_*_*_*_*_*_*.csv", "_" * 250)
    assert not matches("/".join(["**/x*"] * 8), "/".join("x" * 200) + "/y")
    assert time.monotonic() - begun < 2, "to try all ways of matching would take years"


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("sales/**/orders_*.csv", "sales"),
        ("sales/2024/*.csv", "sales/2024"),
        ("sales/2024/a.csv", "sales/2024"),
        ("sales/20*/x/a.csv", "sales"),
        ("*.csv", ""),
        ("**", ""),
        ("a[[]1]/b[*]/*.csv", "a[1]/b*"),
    ],
)
def test_listing_begins_as_deep_as_the_glob_allows(pattern: str, folder: str) -> None:
    """Otherwise each tick lists the whole datastore for one container; too deep, and files are missed."""
    assert fixed_part(pattern) == folder


@pytest.mark.parametrize(
    ("patterns", "folder", "reached"),
    [
        (["orders_*.csv"], "", True),
        (["orders_*.csv"], "orders_1.csv", False),
        (["a/*/x.csv"], "a", True),
        (["a/*/x.csv"], "a/b", True),
        (["a/*/x.csv"], "a/b/c", False),
        (["a/*/x.csv"], "b", False),
        (["a/b/x.csv"], "a/b", True),
        (["a/b/x.csv"], "a/x.csv", False),
        (["a/**"], "a/b/c", True),
        (["a/**/b/*.csv"], "a/x/y", True),
        (["a/**/b/*.csv"], "b", False),
        (["**/b/x.csv"], "x/y", True),
        (["20[12]?/*.csv", "b[[]1]/*"], "2024", True),
        (["20[12]?/*.csv", "b[[]1]/*"], "2034", False),
        (["20[12]?/*.csv", "b[[]1]/*"], "b[1]", True),
        ([], "", False),
    ],
)
def test_folders_that_can_hold_no_match_are_not_listed(patterns: list[str], folder: str, reached: bool) -> None:
    """Otherwise each tick of a container with three files lists everything below its folder, or does not look into the folder at all."""
    assert bool(PatternReach(patterns).below(folder)) is reached


def test_a_pattern_reach_distinguishes_files_and_folders() -> None:
    """Otherwise a file counts as a match because a folder of the same name would have to be searched."""
    reach = PatternReach(["a/*.csv", "a/b/*", "**/**/c.csv"])
    assert not reach.has("a") and reach.has("c.csv")
    assert reach.below("a").has("x.csv") and not reach.below("a").has("b")
    assert reach.below("a/b").has("x") and not reach.below("b/b").has("x") and reach.within("b").has("c.csv")


globs = st.lists(st.sampled_from(["a", "b", "**", "*", "a*", "?", "[ab]", "[!a]", "[*]", "*b"]), min_size=1, max_size=6).map("/".join)
places = st.lists(st.sampled_from(["a", "b", "ab", "*", "c"]), min_size=1, max_size=6)


@given(st.lists(globs, max_size=4), places)
def test_files_are_found_exactly_where_a_pattern_matches(patterns: list[str], parts: list[str]) -> None:
    """Otherwise a listing misses files, and with ``prune_files`` their rows are removed."""
    reach = PatternReach(patterns)
    for depth, name in enumerate(parts):
        expected = any(matches(pattern, "/".join(parts[: depth + 1])) for pattern in patterns)
        assert reach.has(name) is expected
        assert PatternReach(patterns).below("/".join(parts[:depth])).has(name) is expected
        rest = "/".join(parts[depth + 1 :])
        reach = reach.within(name)
        if rest and any(matches(pattern, "/".join(parts)) for pattern in patterns):
            assert reach, "what can hold a match is entered"


def test_a_file_has_one_owner() -> None:
    """Otherwise its rows are in two tables, or change from one to the other with the order in the YAML."""
    patterns = ["**/*.csv", "sales/orders_*.csv", "sales/orders_late_*.csv", "sales/orders_late_1.csv"]
    expected = {"x.csv": 0, "sales/orders_1.csv": 1, "sales/orders_late_2.csv": 2, "sales/orders_late_1.csv": 3, "x.json": None}
    for path, index in expected.items():
        assert owner_of(path, patterns) == index
        backwards = owner_of(path, patterns[::-1])
        assert backwards == (None if index is None else 3 - index)
    assert owner_of("ab.csv", ["a*b.csv", "ab.csv"]) == 1, "the file itself goes before a pattern"


# ---------------------------------------------------------------- groups
def grouped(*paths: str, named: dict[str, str] | None = None) -> dict[str, tuple[str, int]]:
    """The groups of these paths: pattern and number of files by the group's name."""
    return {group.name: (group.pattern, len(group.files)) for group in group_files(paths, named)}


UUIDS = ("1f2e3d4c-1111-2222-3333-444455556666", "9a8b7c6d-ffff-eeee-dddd-ccccbbbbaaaa")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (
            ("sales/2024/orders_2024-01-01.csv", "sales/2024/orders_2024-01-02.csv"),
            {"sales_2024_orders": ("sales/2024/orders_*.csv", 2)},
        ),
        (("a/2024-01-01.csv", "a/2024-01-02.csv"), {"a": ("a/*.csv", 2)}),
        (("2024-01-01.csv", "2024-01-02.csv"), {"files": ("*.csv", 2)}),
        (("x_20240101T101500Z.json", "x_2024-01-02T10:15:00Z.json"), {"x": ("x_*.json", 2)}),
        (tuple(f"p/part-0000{i}-{uuid}-c000.parquet" for i, uuid in enumerate(UUIDS)), {"p_part_c": ("p/part-*-c*.parquet", 2)}),
        (("h/log-9f86d081.txt", "h/log-884c7d65.txt", "h/log-abcdef12.txt"), {"h_log": ("h/log-*.txt", 3)}),
        (("fee20240101.csv", "fee20240102.csv", "ad20240101.csv", "ad20240102.csv"), {"fee": ("fee*.csv", 2), "ad": ("ad*.csv", 2)}),
        (("deadbeef.csv", "facade.csv"), {"deadbeef": ("deadbeef.csv", 1), "facade": ("facade.csv", 1)}),
        (("b[1].csv", "b[2].csv", "q*.csv"), {"b": ("b[[]*].csv", 2), "q": ("q[*].csv", 1)}),
        (
            ("a/x_1.csv", "a/x_2.csv", "a/x_1.csv.gz", "a/x_2.csv.gz", "b/x_1.csv", "b/x_2.csv"),
            {"a_x": ("a/x_*.csv", 2), "a_x_csv_gz": ("a/x_*.csv.gz", 2), "b_x": ("b/x_*.csv", 2)},
        ),
        (("_SUCCESS", "a/_tmp/x.csv", ".x.csv", "readme.md", "a.csv.part"), {}),
        (("x-1.csv", "x_1.csv", "X.CSV"), {"X": ("X.CSV", 1), "x_csv": ("x-1.csv", 1), "x_csv_2": ("x_1.csv", 1)}),
        (("ümlaut 1.csv", "\udcff.csv"), {"ümlaut": ("ümlaut 1.csv", 1), "files": ("?.csv", 1)}),
    ],
)
def test_similar_files_are_one_container(paths: tuple[str, ...], expected: dict[str, tuple[str, int]]) -> None:
    """Otherwise each day's file is a table of its own, or files of different meaning are one."""
    assert grouped(*paths) == expected


def test_the_more_specific_pattern_takes_its_files() -> None:
    """Otherwise late orders are in both tables."""
    groups = group_files(["orders_1.csv", "orders_2.csv", "orders_late_1.csv", "orders_late_2.csv", "orders_special.csv"])
    assert {group.pattern: group.files for group in groups} == {
        "orders_*.csv": ("orders_1.csv", "orders_2.csv"),
        "orders_late_*.csv": ("orders_late_1.csv", "orders_late_2.csv"),
        "orders_special.csv": ("orders_special.csv",),
    }


def test_a_second_file_changes_no_name() -> None:
    """Otherwise the container of the first file is gone the day after, and its rows are loaded again into another one."""
    assert list(grouped("orders_2024-01-01.csv")) == list(grouped("orders_2024-01-01.csv", "orders_2024-01-02.csv")) == ["orders"]


def test_containers_keep_their_names_when_files_come_and_go() -> None:
    """Otherwise a file that is added, or one that goes, gives a container's name, and so its table, to other files."""
    named = {"x.json": "x"}
    assert grouped("x.json", "x.csv", named=named) == {"x": ("x.json", 1), "x_csv": ("x.csv", 1)}
    assert grouped("x.csv", named=named) == {"x_csv": ("x.csv", 1)}
    assert grouped("y1.csv", "y2.csv", named={"y1.csv": "mine"}) == {"mine": ("y*.csv", 2)}
    assert grouped("y1.csv", named={"y*.csv": "mine"}) == {"mine": ("y*.csv", 1)}


def catalogued(*listings: list[str]) -> list[dict[str, str]]:
    """The patterns, by name, that the catalog knows after each of several listings. Groups whose files are gone are kept."""
    known: dict[str, str] = {}
    seen: list[dict[str, str]] = []
    for found in listings:
        known = known | {group.name: group.pattern for group in group_files(found, {pattern: name for name, pattern in known.items()})}
        seen.append(known)
    return seen


def test_a_folder_with_only_the_newest_file_is_one_container() -> None:
    """Otherwise, where each day's file replaces the one before, each day gets a table of its own."""
    days = [[f"in/orders_2024-01-{day:02}.csv"] for day in range(1, 6)]
    assert catalogued(*days) == [{"in_orders": "in/orders_2024-01-01.csv"}, *[{"in_orders": "in/orders_*.csv"}] * 4]
    hashes = [[f"in/log-{text}.txt"] for text in ("9f86d081", "abcdef12", "884c7d65", "fade1234")]
    assert catalogued(*hashes)[-1] == {"in_log": "in/log-*.txt"}, "here fade1234 is a hash, not a word and a number"


def test_a_group_that_shrinks_keeps_its_pattern_and_name() -> None:
    """Otherwise files that come later belong to no container, and the next catalog makes a second one for them."""
    assert catalogued(["a/x_1.csv", "a/x_2.csv"], ["a/x_2.csv"], [], ["a/x_7.csv"]) == [{"a_x": "a/x_*.csv"}] * 4


def test_a_single_file_is_its_own_pattern() -> None:
    """Otherwise files with another meaning get into its table."""
    assert catalogued(["a_1.csv", "b.csv"], ["a_1.csv", "b.csv"])[-1] == {"a": "a_1.csv", "b": "b.csv"}
    assert catalogued(["b.csv"], ["c.csv"])[-1] == {"b": "b.csv", "c": "c.csv"}, "these differ in more than numbers"


def test_files_stay_in_their_container_when_others_come_and_go() -> None:
    """Otherwise a file that comes or goes moves others from one table into another."""
    fees = ["fee20240101.csv", "fee20240102.csv"]
    assert catalogued(fees, [*fees, "ab12cd34.csv"])[-1] == {"fee": "fee*.csv", "files": "ab12cd34.csv"}
    assert catalogued(["1.csv", "2.csv"], ["1.csv", "fee20240101.csv"])[-1] == {"files": "*.csv", "fee": "fee20240101.csv"}
    logs = [f"log-{text}.txt" for text in ("9f86d081", "884c7d65", "abcdef12")]
    assert catalogued(logs, logs[2:])[-1] == {"log": "log-*.txt"}
    known = {"fee20240101.csv": "fee", "*.csv": "files"}
    assert grouped("fee20240101.csv", named=known) == {"fee": ("fee20240101.csv", 1)}, "although no file like 1.csv is there any more"


def test_a_group_with_several_former_names_gets_one() -> None:
    """Otherwise two containers share a table, or a container goes on under the name of one that was gone for long."""
    before = {"x_1.csv": "gone", "x_2.csv": "there", "x_3.csv": "gone_too"}
    assert grouped("x_2.csv", named=before) == {"there": ("x_*.csv", 1)}
    assert grouped("x_4.csv", named=before) == {"gone": ("x_*.csv", 1)}
    assert grouped("x_2.csv", named={**before, "x_*.csv": "all"}) == {"all": ("x_*.csv", 1)}
    assert grouped("x_1.csv", "y.csv", named={"x_1.csv": "same", "y.csv": "same"}) == {"same": ("x_1.csv", 1), "y": ("y.csv", 1)}


def test_names_that_are_not_utf8_get_patterns_that_are() -> None:
    """Otherwise the catalog cannot be saved where the name of one file is encoded in Latin-1."""
    assert catalogued(["f\udcfcr_1.csv"], ["f\udcfcr_2.csv"]) == [{"f_r": "f?r_*.csv"}] * 2
    assert grouped("\udcfc/1.csv", "\udcfc/2.csv") == {"files": ("?/*.csv", 2)}
    assert grouped("\udcfc.csv", "\udce4.csv", "q?.csv") == {"files": ("?.csv", 2), "q": ("q[?].csv", 1)}, (
        "no pattern distinguishes these two"
    )
    assert grouped("a\udcfc.csv", "ab.csv") == {"a": ("a?.csv", 1), "ab": ("ab.csv", 1)}, "the pattern a?.csv does not own ab.csv"
    assert grouped("f\udcfcr_1.csv", "for_1.csv", "for_2.csv") == {"f_r": ("f?r_*.csv", 1), "for": ("for_*.csv", 2)}, (
        "nor does f?r_*.csv own the others"
    )


@pytest.mark.long
def test_many_names_that_are_not_utf8_are_grouped_within_seconds() -> None:
    """Otherwise the catalog of an archive in Latin-1 takes hours."""
    letters = "abcdefghijklmnopqrst"
    begun = time.process_time()
    for shape in ("\udcfc/\udce4{}.csv", "\udcfc{}/\udce4.csv", "{}\udcfc1.csv"):
        assert len(group_files([shape.format(a + b + c) for a in letters for b in letters for c in letters])) == len(letters) ** 3
    assert time.process_time() - begun < 10


def test_names_fit_asset_keys_and_folders() -> None:
    """Otherwise a file with a long path makes an asset that Dagster cannot store, or a folder whose name is too long."""
    deep = "/".join(["ordner-für-straßen"] * 30)
    groups = group_files([f"{deep}/a.csv", f"{deep}/b.csv"])
    assert len({group.name for group in groups}) == 2
    assert all(len(group.name) <= 120 for group in groups)


words = st.sampled_from(
    [
        "a",
        "b",
        "_",
        "-",
        ".",
        "T",
        "Z",
        "1",
        "22",
        "dead12",
        "deadbe12",
        "ab12cd34",
        UUIDS[0],
        "*",
        "[",
        "?",
        " ",
        "é",
        "\n",
        "_late",
        "\udcff",
        "\udcfe",
    ]
)
stems = st.lists(words, min_size=1, max_size=4).map("".join)
files = st.builds(
    lambda folder, stem, extension: folder + stem + extension,
    st.sampled_from(["", "a/", "a/b/", "[x]/", "\udcff/"]),
    stems,
    st.sampled_from([".csv", ".CSV", ".csv.gz", ".parquet", ".zip"]),
)


@given(st.lists(files, max_size=12))
def test_each_file_belongs_to_the_group_that_owns_it(found: list[str]) -> None:
    """Otherwise the catalog shows a file in one container and the sync reads it into another, or into none."""
    groups = group_files(found)
    expect_each_file_in_one(groups, found)
    assert group_files(found[::-1]) == groups, "the order of the listing does not matter"
    assert group_files(found, {group.pattern: group.name for group in groups}) == groups, "a second catalog finds the same groups"


def expect_each_file_in_one(groups: list[FileGroup], found: list[str]) -> None:
    patterns = [group.pattern for group in groups]
    supported = {path for path in found if format_of(path) and not is_hidden(path)}
    assert sorted(path for group in groups for path in group.files) == sorted(supported)
    for index, group in enumerate(groups):
        assert all(owner_of(path, patterns) == index and path.startswith(fixed_part(group.pattern)) for path in group.files)
        assert {format_of(path) for path in group.files} == {group.format}
        assert group.pattern.encode() and group.name.encode(), "text that can be saved"
    assert len({group.name.casefold() for group in groups}) == len(set(patterns)) == len(groups)


@given(st.lists(st.lists(files, max_size=6), max_size=4), st.dictionaries(files, st.sampled_from(["x", "y", "a"]), max_size=3))
def test_each_file_belongs_to_one_group_when_files_come_and_go(listings: list[list[str]], known: dict[str, str]) -> None:
    """The same holds whatever the catalog knows already, and a group with a glob keeps its glob for as long as one of its files is
    there."""
    for found, then in itertools.pairwise(listings):
        groups = group_files(found, known)
        expect_each_file_in_one(groups, found)
        names = {group.name: group.pattern for group in groups}
        known = {pattern: name for pattern, name in known.items() if name not in names} | {group.pattern: group.name for group in groups}
        after = {group.name: group.pattern for group in group_files(then, known)}
        assert all(after.get(name, pattern) == pattern for name, pattern in names.items() if "*" in pattern.replace("[*]", ""))


plain = st.builds(
    "{}{}{}_{}.csv".format, st.sampled_from(["a/", "b/", ""]), st.sampled_from(["x", "y", "\udcff"]), st.integers(0, 3), st.integers(0, 3)
)


@given(st.lists(st.lists(plain, max_size=5), min_size=1, max_size=6))
def test_a_file_never_changes_its_container(listings: list[list[str]]) -> None:
    """Otherwise its rows stay in one table and are loaded into another one as well."""
    known: dict[str, str] = {}
    home: dict[str, str] = {}
    for found in listings:
        groups = group_files(found, {pattern: name for name, pattern in known.items()})
        known |= {group.name: group.pattern for group in groups}
        for group in groups:
            assert {home.setdefault(path, group.name) for path in group.files} == {group.name}
    assert len(set(known.values())) == len(known)


@given(st.lists(files, max_size=12), files)
def test_a_file_that_is_added_changes_no_containers_name(found: list[str], arrived: str) -> None:
    """The same as ``test_containers_keep_their_names_when_files_come_and_go``, with many random names."""
    before = group_files(found)
    after = group_files([*found, arrived], {group.pattern: group.name for group in before})
    names: dict[str, FileGroup] = {group.name: group for group in after}
    assert len({name.casefold() for name in names}) == len(after)
    for group in before:
        if group.name in names:
            assert set(names[group.name].files) & set(group.files)
