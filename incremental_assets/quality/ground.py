"""Which rows of a table a scan looks at, and which partition each is in.

Belongs here: from partition keys, or from a threshold, to a predicate that Delta's file statistics can use. Does not belong: where a
threshold comes from (orchestration), or what is asked of the rows (``scan``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FILE
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.rules import Rule, digest
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.delta.sql import file_predicate, partition_of, scope_predicate


@dataclass(frozen=True)
class Ground:
    """Rows of whole partitions.

    ``predicate``: Spark SQL (None: all rows). ``partition``: an expression that tells them apart (None: the container has none), and
    ``key_of`` the key of its value. ``keys``: of the partitions looked at, with rows or without (None: those that have rows). ``also``:
    further ones of those looked at, of which something is on record; None among them: the rows of no partition. ``windows``: what of the
    identifier's axis that covers. ``before``: the keys of up to so many partitions before one, nearest last. ``of_keys``: the predicate
    of given ones. ``is_over``: whether nothing more is expected in a partition. ``nulls``: the rows of no partition are looked at.
    """

    container: Container
    predicate: str | None
    partition: str | None
    keys: tuple[str, ...] | None
    also: tuple[str | None, ...] = ()
    windows: tuple[Window, ...] = (EVERYTHING,)
    key_of: Callable[[object], str] = field(default=str, repr=False)
    before: Callable[[str, int], Sequence[str]] = field(default=lambda key, count: (), repr=False)
    of_keys: Callable[[Sequence[str]], str] = field(default=lambda keys: "false", repr=False)
    is_over: Callable[[str], bool] = field(default=lambda key: True, repr=False)
    nulls: bool = False

    def asks(self, rule: Rule) -> str:
        """A digest of what a number of the rule is about here: of another cut or identifier, it is not comparable."""
        cut = self.container.cut
        return digest(f"{rule.asks} {self.container.signature} {cut.word if cut is not None else ''}")


def whole_table(container: Container) -> Ground:
    """Of a container without partitions."""
    return Ground(container, None, None, None)


def ground_of(
    container: Container,
    partitions: Partitions,
    keys: Sequence[str] | None = None,
    since: int | None = None,
    nulls: bool = True,
    watermark: int | None = None,
    noted: Sequence[str | None] = (),
) -> Ground:
    """Of a table or view with partitions: those with the keys, or (``keys`` is None) those from the one in which ``since`` lies on.

    ``nulls``: with the rows that have no identifier. ``watermark``: of the lake; a partition that ends above it is not over. ``noted``:
    partitions that something is on record of, whether they have rows or not (None: the rows of no partition).
    """
    identifier, cut = container.identifier, container.cut
    assert identifier is not None and cut is not None
    from_since = (EVERYTHING if since is None else partitions.from_value(since),)
    windows = from_since if keys is None else partitions.windows_of(keys)
    everything = windows == (EVERYTHING,) and nulls

    def covers(key: str | None) -> bool:
        if key is None or keys is not None:
            return nulls and key is None
        try:
            lower = partitions.window_of(key).lower
        except ConfigurationError:  # it was cut otherwise then
            return everything
        return windows[0].lower is None or (lower is not None and lower >= windows[0].lower)

    def before(key: str, count: int) -> Sequence[str]:
        try:
            return partitions.keys_before(key, count)
        except ConfigurationError:  # it was cut otherwise then, or is not known yet: nothing to compare with
            return ()

    def is_over(key: str) -> bool:
        try:
            upper = partitions.window_of(key).upper
        except ConfigurationError:
            return False
        return upper is not None and watermark is not None and upper <= watermark

    return Ground(
        container=container,
        predicate=None if everything else scope_predicate(identifier, windows, nulls),
        partition=partition_of(identifier, cut, partitions),
        keys=None if keys is None else tuple(keys),
        also=tuple(key for key in noted if covers(key)),
        windows=windows,
        key_of=lambda start: partitions.key_of(int(str(start))),
        before=before,
        of_keys=lambda chosen: scope_predicate(identifier, partitions.windows_of(chosen), False),
        is_over=is_over,
        nulls=nulls,
    )


def ground_of_files(
    container: Container,
    known: Sequence[str],
    keys: Sequence[str] | None,
    modified: str | None,
    windows: tuple[Window, ...],
    noted: Sequence[str | None] = (),
) -> Ground:
    """Of a container of files: those with the keys, or those for which ``modified`` (a predicate of their time) holds; None: all.

    ``known``: all there are, in the order in which they came. ``windows``: of the modification time. ``noted`` as for ``ground_of``; of
    those, files that are gone are looked at in any case, as nothing says when they went.
    """
    order = {key: position for position, key in enumerate(known)}
    everything = keys is None and modified is None
    on_record = [key for key in noted if key is not None and (everything or key not in order)]
    of_those = f" OR {file_predicate(on_record)}" if on_record else ""
    chosen = modified if keys is None else file_predicate(keys)
    return Ground(
        container=container,
        predicate=None if chosen is None else f"{chosen}{of_those}",
        partition=quote(FILE.name),
        keys=None if keys is None else tuple(keys),
        also=tuple(on_record),
        windows=windows,
        before=lambda key, count: known[max(0, order.get(key, 0) - count) : order.get(key, 0)],
        of_keys=file_predicate,
    )
