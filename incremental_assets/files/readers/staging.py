"""Stages files so that Spark can read them, and maps each row back to its file.

Spark takes ``*?[]{}`` in a path for a glob pattern and cannot hold some names at all; a link has a name without such characters. It leads
to a descriptor that this process holds (``/proc/<its id>/fd/<n>``) and not to a path: a path may be replaced by a link to any file before
Spark opens it. Where there are no such descriptors, as for a server of another user or another machine, Spark reads a copy.
"""

import codecs
import contextlib
import itertools
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.utils import infer_compression

from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted
from incremental_assets.core.files import FileFormat
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.beginning import HEAD_BYTES, Beginning, expect_text, wide_encoding
from incremental_assets.files.readers.measure import CHUNK, Meter, expect_stored, is_surely_small, unzst
from incremental_assets.files.readers.parquet_copy import FinerTimes, converted
from incremental_assets.files.readers.quoting import MARKED, WRONG_BYTES, MarkedLines, Quoting
from incremental_assets.files.readers.reading import NAME, ReadFile, Reading, refusal

if TYPE_CHECKING:
    from pyspark.sql.connect.readwriter import DataFrameReader
    from pyspark.sql.dataframe import DataFrame
    from pyspark.sql.types import StructType

_DELIMITED = (FileFormat.CSV, FileFormat.TSV)
_TEXT = (*_DELIMITED, FileFormat.JSON, FileFormat.TEXT)
# What Spark decompresses by itself, by the file's extension; all other compressed text is unpacked into a copy.
_SPARK_KNOWS = {"gzip": ".gz", "bz2": ".bz2"}
SPARE = 256
"""How many descriptors stay free for all else that this process opens."""
_SLASHES = re.compile(r"\A([A-Za-z0-9+.\-]+:)/+")


class Staging:
    """A temporary folder of links and copies that Spark reads; ``close`` removes it, and closes the descriptors that the links lead to.

    ``folder``: where the temporary folder is created. Raises ConfigurationError for an encoding that Python does not know.
    """

    def __init__(self, address: FolderAddress, reading: Reading, folder: Path) -> None:
        self._address, self._reading, self._parent = address, reading, folder
        if reading.encoding is not None:
            try:
                codecs.lookup(reading.encoding)
            except LookupError:
                raise ConfigurationError(f"options: encoding {reading.encoding!r} is none that is known here") from None
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="files", dir=folder)).absolute()
        self._paths: dict[str, str] = {}
        self._copies: dict[str, Path] = {}
        self._wide: dict[str, str] = {}  # the encodings of files of JSON that tell theirs by their first bytes
        self._looked_at: set[str] = set()  # files that were searched for rows of several lines
        self._held: list[int] = []
        self._firsts: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.names: dict[str, str] = {}
        """The key of each file, by the name that Spark has for it (the column ``NAME``)."""
        self.unread: set[str] = set()
        """The keys of Parquet files that Spark has failed to read, so that pyarrow reads them."""
        self._numbers = itertools.count()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        while self._held:
            os.close(self._held.pop())
        with contextlib.suppress(OSError):  # it holds other files too
            self._parent.rmdir()

    # ------------------------------------------------------------------ staging files
    def take(self, files: Sequence[ReadFile]) -> dict[str, Beginning | SourceError]:
        """Stages all files. Returns by key how each one begins, or why it cannot be read.

        Raises SourceInterrupted where the disk, the machine or the network fails, and no file is at fault.
        """
        self._room = 0 if self._address.local is None else _room(len(files))
        with ThreadPoolExecutor(16) as pool:  # threads, as each access to a remote folder waits for the network
            found = pool.map(self._take, range(len(files)), files)
            return dict(zip((file.key for file in files), found, strict=True))

    def _take(self, number: int, file: ReadFile) -> Beginning | SourceError:
        """Stages one file as a copy, a link or (a remote file) by its URL, and checks its limits. ``number``: unique among the files."""
        try:
            expect_stored(file, self._size(file), self._reading.limits)
            compression = self._compression(file)
            suffix = _SPARK_KNOWS.get(compression or "", "")
            link = self._folder / f"f{number:06d}.{self._reading.format.value}{suffix}"
            local = self._address.local
            # Text that Spark cannot decompress, or that has another encoding than UTF-8, is copied as plain UTF-8.
            ours = bool(compression and not suffix) or (self._reading.format in _TEXT and self._reading.encoding is not None)
            ours |= bool(self._reading.skip_lines or self._reading.skip_footer)
            # Spark goes by the extension in lower case: a remote ``a.csv.GZ`` has to be copied too, a local one gets a link ``….gz``.
            if ours or (suffix and local is None and not file.path.endswith(suffix)):
                self._measure(file, compression, record=False)
                begins = self._copied(file, number, compression)
                return begins if begins.separator is None else self._copied(file, number, compression, begins.separator)
            if local is None:
                self._paths[file.key] = _escaped(self._address.spark_url(file.path))
            else:
                if number < self._room:
                    self._link(file, link)
                else:
                    self._copy_as_it_is(file, link)
                self._set(file, link)
            with self._address.open(file.path, decompress=compression is not None) as stream:
                head = stream.read(HEAD_BYTES)
            if self._is_wide(file, head):
                return self._copied(file, number, compression)
            begins = self._begins(file, head, None)
            if begins.separator is not None:
                return self._copied(file, number, compression, begins.separator)
            if self._reading.format in _TEXT:
                self._measure(file, compression, record=begins.record)
            return begins
        except SourceInterrupted:
            raise
        except SourceError as error:
            return error

    def _copied(self, file: ReadFile, number: int, compression: str | None, separator: str | None = None) -> Beginning:
        """Copies a file, and returns how the copy begins. ``separator``: that its first line names, which is left out."""
        copy = self._copy(file, number, compression, separator)
        assert copy is not None
        with open(copy, "rb") as stream:
            head = Quoting(self._reading).originals(stream.read(HEAD_BYTES))
        if self._is_wide(file, head):
            return self._copied(file, number, compression)
        if separator is None:
            return self._begins(file, head, copy.stat().st_size)
        return replace(Beginning.of(head, self._reading.separated_by(separator)), separator=separator)

    def _is_wide(self, file: ReadFile, head: bytes) -> bool:
        """Whether a file of JSON proves to have two or four bytes for a character, so that it has to be copied as UTF-8."""
        reading = self._reading
        if reading.format is not FileFormat.JSON or reading.by_line or reading.encoding is not None or file.key in self._wide:
            return False
        encoding = wide_encoding(head)
        if encoding is not None:
            self._wide[file.key] = encoding
        return encoding is not None

    def mark(self, files: Iterable[ReadFile]) -> dict[str, str] | None:
        """Makes copies with marks (``quoting``) of those files of CSV that have rows of several lines, or U+FFFD as a character.

        Returns by key why a file cannot be read after all; None: no file was copied, so that all stays as it was.
        """
        refused: dict[str, str] = {}
        is_changed = False
        for file in files:
            if file.key not in self._looked_at:
                try:
                    is_changed |= self._copy(file, len(self._looked_at), self._compression(file), always=False) is not None
                except SourceInterrupted:
                    raise
                except SourceError as error:
                    refused[file.key] = str(error)
        return refused if refused or is_changed else None

    def _compression(self, file: ReadFile) -> str | None:
        if file.path.lower().endswith(".zst"):
            return "zstd"
        return infer_compression(file.path) if self._reading.format in _TEXT else None

    def _begins(self, file: ReadFile, head: bytes, size: int | None) -> Beginning:
        """Parses the first bytes of a file. ``size``: of the whole decompressed file in bytes; None: not known."""
        if self._reading.format in _TEXT:
            expect_text(file, head)
        begins = Beginning.of(head, self._reading)
        if begins.record and size is not None and size > self._reading.limits.line_bytes:
            raise SourceError(refusal(file, self._reading.limits.too_long("it is one JSON value and not one a line, of")))
        # Many files have the same header; it is kept in memory once.
        return replace(begins, first=self._firsts.setdefault(begins.first, begins.first))

    def _size(self, file: ReadFile) -> int:
        """The stored bytes of a file: as they are now for a local file, else as they were listed."""
        if self._address.local is None:
            return file.size
        with self._address.open(file.path, decompress=False) as stream:
            return os.fstat(stream.fileno()).st_size

    def _measure(self, file: ReadFile, compression: str | None, *, record: bool) -> None:
        """Reads a whole text file to find out whether it keeps to the limits, and keeps none of it. Raises SourceError where it does not.

        A file that surely keeps to them, by its stored size, is not read.
        """
        if is_surely_small(self._size(file), compression, self._reading):
            return
        meter = Meter(file, self._reading, record=record)
        for chunk in self._texts(file, compression):
            meter.feed(chunk)

    def _chunks(self, file: ReadFile, compression: str | None) -> Iterator[bytes]:
        """Yields the bytes of a file in chunks, decompressed. Raises SourceError, also where the file cannot be read to its end."""
        zstd = compression == "zstd"
        with self._address.open(file.path, decompress=compression is not None and not zstd) as stream:
            yield from unzst(stream) if zstd else iter(lambda: stream.read(CHUNK), b"")

    def _texts(self, file: ReadFile, compression: str | None) -> Iterator[bytes]:
        """Yields the same of a text file, as UTF-8. Bytes that are not of its encoding become others that are no UTF-8."""
        encoding = self._wide.get(file.key, self._reading.encoding)
        decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)(WRONG_BYTES)
        for chunk in self._chunks(file, compression):
            yield chunk if decoder is None else decoder.decode(chunk).encode("utf-8", WRONG_BYTES)
        if decoder is not None:
            yield decoder.decode(b"", True).encode("utf-8", WRONG_BYTES)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raises SourceInterrupted where the disk of the temporary folder fails, as no file is at fault."""
        try:
            yield
        except OSError as error:
            raise SourceInterrupted(
                f"{self._address.datastore}: {self._folder}, where files are on their way to Spark, cannot be written: {error.strerror}. "
                f"Free space there, or name another folder with TMPDIR, then sync again; no file was refused for it."
            ) from error

    def _set(self, file: ReadFile, path: Path) -> None:
        """Records the path by which Spark reads a staged file, and the name by which its rows are mapped back."""
        self._paths[file.key] = _escaped(str(path))
        self.names[f"{path.parent.name}/{path.name}"] = file.key

    def _link(self, file: ReadFile, link: Path) -> None:
        """Makes a link to a descriptor of the file, which is held until ``close``: Spark may read the file again to make its rows anew."""
        descriptor = self._address.descriptor(file.path)
        self._held.append(descriptor)
        with self._writing():
            link.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")

    def _copy_as_it_is(self, file: ReadFile, copy: Path) -> None:
        with self._writing(), open(copy, "wb") as out:  # reading the file raises no OSError of its own
            for chunk in self._chunks(file, None):
                out.write(chunk)

    def _copy(
        self, file: ReadFile, number: int, compression: str | None, separator: str | None = None, *, always: bool = True
    ) -> Path | None:
        """Copies a file decompressed, as UTF-8, and with marks if it is CSV; None: it has none, and is copied only with them.

        ``number``: unique among the files. ``separator``: that its first line names, which is left out. Raises
        SourceError beyond the limits.
        """
        is_delimited = self._reading.format in _DELIMITED
        copy = self._folder / f"{MARKED if is_delimited else 'f'}{number:06d}.{self._reading.format.value}"
        meter, texts = Meter(file, self._reading, record=False), self._texts(file, compression)
        skip = self._reading.skip_lines + (separator is not None)
        marked = MarkedLines(texts, file, self._reading.separated_by(separator), not_text=True, skip=skip)
        copy.unlink(missing_ok=True)  # it may be a link to the file itself, which must not be written through
        with self._writing(), open(copy, "xb") as out:  # reading the file raises no OSError of its own
            for chunk in marked if is_delimited else texts:
                meter.feed(chunk)
                out.write(chunk)
        self._looked_at.add(file.key)
        if not (always or marked.is_changed):
            copy.unlink()
            return None
        self._copies[file.key] = copy
        self._set(file, copy)
        return copy

    def read_otherwise(self, file: ReadFile) -> bool:
        """Whether a file that Spark has failed to read is to be read in another way: a Parquet file by pyarrow, once."""
        if self._reading.format is not FileFormat.PARQUET or file.key in self._copies or file.key in self.unread:
            return False
        self.unread.add(file.key)
        return True

    def copy_parquet(self, file: ReadFile, carried: pa.Schema) -> None:
        """Lets Spark read a copy of a Parquet file, which has the types ``carried``. Raises SourceError where that cannot be."""
        if file.key in self._copies:
            return
        path = self._folder / f"c{next(self._numbers):06d}.parquet"
        with self._address.open(file.path, decompress=False) as stream, contextlib.ExitStack() as stack:
            try:
                with self._writing():
                    writer = stack.enter_context(pq.ParquetWriter(path, carried, store_schema=False))
                for batch in converted(stream, carried, cuts_times=self._reading.cuts_times):
                    with self._writing():
                        writer.write_batch(batch)
                with self._writing():
                    writer.close()
            except FinerTimes as error:
                raise SourceError(refusal(file, str(error))) from None
        self._copies[file.key] = path
        self._set(file, path)

    # ------------------------------------------------------------------ reading staged files
    def load(self, reader: "DataFrameReader", files: Sequence[ReadFile], *columns: str) -> "DataFrame":
        """Returns a frame of the given columns of the files, and of ``NAME``, Spark's name of each row's file.

        Raises SourceError for a remote file that Spark does not list by a name that maps back to it.
        """
        # Explicitly off, as the server's configuration may switch them on: Spark would then drop rows of broken files without an error.
        frame = reader.options(ignoreCorruptFiles="false", ignoreMissingFiles="false").load([self._paths[file.key] for file in files])
        # The rows of remote files carry the whole URL. Spark may spell it percent-encoded or not, and with one or three slashes after the
        # scheme, so the URLs that it really lists are mapped here.
        if self._address.local is None:
            wanted = {_one_slash(self._address.spark_url(file.path)): file.key for file in files if file.key not in self._copies}
            for url in frame.inputFiles() if wanted else ():
                name = _one_slash(url)
                key = wanted.pop(unquote(name), None) or wanted.pop(name, None)
                if key is not None:
                    self.names[name] = key
            if wanted:
                raise SourceError(f"Spark lists no file {next(iter(wanted))}, which is there; its rows could not be told from others")
        # ``_metadata.file_path`` spells local paths otherwise than ``inputFiles()``; of staged files, the last two parts are enough.
        ours = f"regexp_extract(_metadata.file_path, '/({self._folder.name}/[^/]*)$', 1)"
        whole = "regexp_replace(_metadata.file_path, '^([A-Za-z0-9+.-]+:)/+', '$1/')"
        return frame.selectExpr(*columns, f"coalesce(nullif({ours}, ''), {whole}) AS {NAME}")

    def schema(self, reader: "DataFrameReader", file: ReadFile) -> "StructType":
        """Returns the schema that Spark infers from one file. Raises AnalysisException."""
        return reader.load(self._paths[file.key]).schema

    def named_in(self, text: str, files: Iterable[ReadFile]) -> list[ReadFile]:
        """Returns those of the files that a message of Spark names, in any of the spellings that Spark uses."""
        own = {self.names[name] for name in set(re.findall(rf"{self._folder.name}/[fc]\d+[.\w]*", text)) if name in self.names}
        found: list[ReadFile] = []
        for file in files:
            url = "" if self._address.local is not None else self._address.spark_url(file.path).partition("://")[2]
            if file.key in own or (
                url and re.search(rf"(?:{re.escape(url)}|{re.escape(quote(url))}|{re.escape(_escaped(url))})(?![\w/-])", text)
            ):
                found.append(file)
        return found

    def why_broken(self, file: ReadFile) -> str | None:
        """Reads a whole file without Spark, and returns what is wrong with it; None: nothing is found."""
        try:
            compressed = self._reading.format in _TEXT and infer_compression(file.path) is not None
            with self._address.open(file.path, decompress=compressed) as stream:
                while stream.read(CHUNK):
                    pass
        except SourceError as error:
            return str(error)
        return None


def _room(count: int) -> int:
    """How many of so many files may be held open for Spark to read. The limit of this process is raised where that is allowed."""
    if os.environ.get("SPARK_REMOTE") or not os.path.isdir("/proc/self/fd"):
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = len(os.listdir("/proc/self/fd")) + SPARE
    if soft < taken + count:
        soft = min(hard, taken + count)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft - taken


def _escaped(path: str) -> str:
    """Escapes the characters that Spark takes for glob patterns in paths."""
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in path)


def _one_slash(url: str) -> str:
    """The URL with one slash after the scheme: ``file:///x`` and ``file:/x`` are the same file."""
    return _SLASHES.sub(r"\1/", url)
