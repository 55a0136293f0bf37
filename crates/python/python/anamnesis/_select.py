"""Which tensors a call is for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # a pattern as of a shell, names, or a function of a name
    Filter = str | Iterable[str] | Callable[[str], bool]


def select(wanted: Filter | None, names: Iterable[str]) -> set[str] | None:
    """The names that a filter accepts; ``None`` without a filter. Names that are given must exist."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        from fnmatch import fnmatchcase

        return {name for name in names if fnmatchcase(name, wanted)}
    if callable(wanted):
        return {name for name in names if wanted(name)}
    chosen, known = set(wanted), set(names)
    for name in chosen:
        if name not in known:
            raise KeyError(name)
    return chosen


def chosen_names(wanted: Filter | None, listed: Iterable[str] | None, known: Iterable[str]) -> set[str] | None:
    """The names that are listed and that the filter accepts."""
    known = list(known)
    by_filter = select(wanted, known)
    by_list = select(None if listed is None else list(listed), known)
    if by_filter is None or by_list is None:
        return by_list if by_filter is None else by_filter
    return by_filter & by_list
