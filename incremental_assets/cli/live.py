"""The lines of a terminal that show how far syncs are: one for each container that is being synced, below what was printed."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from incremental_assets.cli.terminal import error_console
from incremental_assets.core.shown_text import on_one_line
from incremental_assets.delta.progress import Progress, displayed_by


@contextlib.contextmanager
def live_lines() -> Iterator[None]:
    """Within the block, the progress of syncs is shown, if stderr is a terminal."""
    console = error_console()
    if not console.is_terminal:
        yield
        return
    lines = _Lines(console)
    with lines.live, displayed_by(lines):
        yield


class _Lines:
    """The lines that are shown now, in the order in which the syncs have begun."""

    def __init__(self, console: Console) -> None:
        self._shown: dict[str, tuple[Progress, float]] = {}
        self.live = Live(console=console, get_renderable=self.rendered, refresh_per_second=4, transient=True, redirect_stdout=False)

    def show(self, container: str, progress: Progress | None) -> None:
        """Shows a phase that begins at once, as it may be shorter than the time between two refreshes."""
        if progress is None:
            self._shown.pop(container, None)
            return
        before = self._shown.get(container)
        self._shown[container] = (progress, time.monotonic())
        if before is None or before[0].phase is not progress.phase:
            self.live.refresh()

    def rendered(self) -> Group:
        """The lines, each cut to the width of the terminal."""
        now = time.monotonic()
        found = [f"{container}: {replace(progress, waited=now - at).text()}" for container, (progress, at) in list(self._shown.items())]
        return Group(*(Text(on_one_line(line), no_wrap=True, overflow="ellipsis", style="cyan") for line in found))
