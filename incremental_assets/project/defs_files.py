"""Finds the ``defs.yaml`` of a project, and the one that defines a datastore."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from incremental_assets.core.errors import ConfigurationError


@dataclass(frozen=True)
class YamlPlace:
    """Where a datastore is defined: the file, its text, which of its documents it is, and how many components the file has."""

    file: Path
    text: str
    document: int
    components: int = 1


def defs_files(folder: Path) -> list[Path]:
    """The files below the folder that define components."""
    return sorted(path for path in folder.glob("**/defs.y*ml") if path.is_file())


def place_of(folder: Path, datastore: str) -> YamlPlace:
    """The place of the datastore below ``folder``. Raises ConfigurationError where no ``defs.yaml`` names it, or several do."""
    found: list[YamlPlace] = []
    for file in sorted(folder.glob("**/defs.yaml")):
        text = file.read_text(encoding="utf-8")
        documents = list(yaml.safe_load_all(text))
        components = sum(isinstance(document, dict) for document in documents)
        for number, document in enumerate(documents):
            if isinstance(document, dict) and (document.get("attributes") or {}).get("name") == datastore:
                found.append(YamlPlace(file.resolve(), text, number, components))
    if len(found) != 1:
        raise ConfigurationError(
            f"{len(found) or 'no'} defs.yaml below {folder.name} names the datastore {datastore}, so that it cannot be changed by a "
            f"command; change the YAML by hand."
        )
    return found[0]
