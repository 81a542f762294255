"""`docs/tutorial.md`: each of its steps does what the page says, on a real database.

Belongs here: running the page. Does not belong: what its commands do otherwise.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from incremental_assets.spark.embedded.server import in_use
from incremental_assets.spark.session import ensure_server

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"
NOT_RUN = ("python3 -m venv", "pip install", "export SHOP_URL=")


def blocks(page: Path = PAGE) -> list[tuple[str, str]]:
    """The language and the text of the blocks of a page, in their order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def expect(wanted: str, printed: str) -> None:
    """Each line of ``wanted`` is printed, in that order; ``…`` stands for anything within a line."""
    left = [line.rstrip() for line in printed.splitlines()]
    for line in wanted.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("…")))
        found = next((i for i, one in enumerate(left) if pattern.fullmatch(one)), None)
        assert found is not None, f"{line}\nis not printed after what comes before it:\n{printed}"
        left = left[found + 1 :]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_step_of_the_tutorial_does_what_it_says(tmp_path: Path, database: str, spark_home: Path) -> None:
    """A tutorial that does not work is the last page that a new user reads."""
    here, printed = tmp_path, ""
    own = ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT")
    environment = {key: value for key, value in os.environ.items() if key not in own}
    bin_folder = str(Path(sys.executable).parent)
    environment |= {"SHOP_URL": database, "SPARK_REMOTE": ensure_server(spark_home), "COLUMNS": "100"}
    environment["PATH"] = os.pathsep.join([bin_folder, environment["PATH"]])
    environment["PYTHONPATH"] = str(PAGE.parent.parent)
    steps = blocks()
    assert {"python", "sh", "sql", "text", "yaml"} == {kind for kind, _ in steps}
    with in_use(spark_home):
        for kind, text in steps:
            if kind == "text":
                expect(text, printed)
            elif kind == "sql":
                with psycopg.connect(database, autocommit=True) as connection:
                    connection.execute(text.encode())
            elif kind == "yaml":
                file = here / "defs" / "shop" / "defs.yaml"
                # Lines of the whole datastore replace all from there on; others replace the line of the container.
                replaced = r"^  incremental:(.|\n)*" if text.startswith("  incremental:") else r"^    customer: .*\n"
                changed, number = re.subn(replaced, lambda _, new=text: new, file.read_text(), flags=re.M)
                assert number == 1
                file.write_text(changed)
            elif kind == "python":
                command = [sys.executable, "-c", text]
                printed = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120, check=True).stdout
            else:
                printed = ""
                for line in text.splitlines():
                    if line.startswith("cd "):
                        here = here / line.removeprefix("cd ")
                    elif not line.startswith(NOT_RUN):
                        done = subprocess.run(
                            ["/bin/sh", "-c", line], cwd=here, env=environment, capture_output=True, text=True, timeout=300, check=False
                        )
                        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                        printed += done.stdout + done.stderr
