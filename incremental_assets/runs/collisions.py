"""Finds containers whose jobs, locks and pages would have the names of those of another datastore.

In these names ``__`` stands between datastore and container, so those of ``shop``/``eu__orders`` and ``shop__eu``/``orders`` are equal.
They stay as they are, as the history of runs is found by them; such containers are refused, and all others go on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from incremental_assets.catalog.state import Catalog
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import encode_name
from incremental_assets.project.catalogued import CataloguedComponent
from incremental_assets.runs.launch import JOBS_OF_A_DATASTORE

Names = Callable[[CataloguedComponent], Sequence[str]]
"""Returns the names of the containers of a datastore; it is asked only where the names of two datastores can collide."""
_OPS = (*JOBS_OF_A_DATASTORE, "containers", "tables")
"""How the ops of a datastore's jobs end."""


def names_of(component: CataloguedComponent, catalog: Catalog | None) -> Sequence[str]:
    """The names of the containers that the datastore has by this catalog."""
    try:
        return [] if catalog is None else [definition.container.name for definition in component.definitions(catalog)]
    except ConfigurationError:  # its own commands say it
        return []


def collisions(component: CataloguedComponent, others: Sequence[CataloguedComponent], names: Names) -> Mapping[str, ConfigurationError]:
    """The errors of those containers of the datastore that collide with others, by name."""
    found: dict[str, str] = {}
    for other in others:
        found |= {mine: whose for mine, _, whose in _pairs(component, other, names)}
        found |= {theirs: f"{other.name}/{mine}" for mine, theirs, _ in _pairs(other, component, names) if theirs is not None}
    return {name: _refused(f"{component.name}/{name}", whose) for name, whose in found.items()}


def _pairs(shorter: CataloguedComponent, longer: CataloguedComponent, names: Names) -> Iterator[tuple[str, str | None, str]]:
    """Yields the containers of ``shorter`` that collide: with which container of ``longer`` (None: with its jobs), and that in words."""
    begin = f"{encode_name(shorter.name)}__"
    rest = encode_name(longer.name).removeprefix(begin)
    if rest == encode_name(longer.name):
        return
    own = {encode_name(name): name for name in names(shorter)}
    for name in names(longer):
        mine = own.get(f"{rest}__{encode_name(name)}")
        if mine is not None:
            yield mine, name, f"{longer.name}/{name}"
    for encoded in (rest, *(f"{rest}_{what}" for what in _OPS)):
        if encoded in own:
            yield own[encoded], None, f"the datastore {longer.name}"


def _refused(label: str, other: str) -> ConfigurationError:
    return ConfigurationError(
        f"{label}: its jobs, its lock and its page would have the names of those of {other}, as __ stands between datastore and container. "
        f"It is not synced. Give one of the two datastores a name without __, or read the table through a view that has another name, and "
        f"list the table under exclude."
    )
