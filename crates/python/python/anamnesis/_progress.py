"""Progress of calls: a callback, or a bar."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # called with complete and all bytes
    Report = Callable[[int, int], object]
    # `True` is a bar: of tqdm, where it is installed
    Progress = Report | bool | None


@contextmanager
def reporting(progress: Progress, what: str) -> Iterator[Report | None]:
    """The callback for the progress of a call. ``True`` shows a bar: of tqdm where it is installed, also in notebooks."""
    if not progress:
        yield None
    elif callable(progress):
        yield progress
    elif progress is not True:
        raise TypeError(f"progress: a function, True or None, not {type(progress).__name__}")
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            yield _bar
            return
        with tqdm(desc=what, unit="B", unit_scale=True, unit_divisor=1024) as bar:

            def report(done: int, total: int) -> None:
                bar.total = total
                # a run that begins again begins at 0
                bar.n = done
                bar.refresh()

            yield report


def _bar(done: int, total: int) -> None:
    import sys

    filled = 40 * done // total if total else 40
    end = "\n" if done >= total else ""
    print(f"\r[{'#' * filled:40}] {done:,} of {total:,} bytes{end}", end="", file=sys.stderr, flush=True)
