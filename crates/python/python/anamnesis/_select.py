"""Which tensors a call is for, and how they are called in its result."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    # a pattern as of a shell, names and patterns, or a function of a name
    Filter = str | Iterable[str] | Callable[[str], bool]


def select(wanted: Filter | None, names: Iterable[str], option: str = "filter") -> set[str] | None:
    """The names that a filter accepts; ``None`` without a filter. A filter that accepts none is an error: ``KeyError`` for a name,
    ``ValueError`` for a pattern or a function."""
    if wanted is None:
        return None
    known = set(names)
    if callable(wanted):
        chosen = {name for name in known if wanted(name)}
        if not chosen:
            raise ValueError(f"{option}: the function accepts none of {len(known)} names")
        return chosen
    chosen = set()
    for one in [wanted] if isinstance(wanted, str) else wanted:
        if one in known:
            chosen.add(one)
        elif isinstance(wanted, str) or _is_pattern(one):
            chosen |= _like(one, known, option)
        else:
            raise KeyError(one)
    return chosen


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")


def _like(pattern: str, known: set[str], option: str) -> set[str]:
    from fnmatch import fnmatchcase

    found = {name for name in known if fnmatchcase(name, pattern)}
    if not found:
        example = f", such as {min(known)!r}" if known else ""
        raise ValueError(f"{option}: none of {len(known)} names is like {pattern!r}{example}")
    return found


class Chosen:
    """The names that a call is for, ``None`` for all, and the names of its result."""

    __slots__ = ("names", "new")

    def __init__(self, names: set[str] | None, new: dict[str, str]) -> None:
        self.names, self.new = names, new

    def name(self, old: str) -> str:
        return self.new.get(old, old)


def choose(
    known: Iterable[str],
    *,
    filter: Filter | None = None,
    names: Iterable[str] | None = None,
    exclude: Filter | None = None,
    rename: Mapping[str, str] | None = None,
    strip_prefix: str | None = None,
) -> Chosen:
    """The names that are listed and that the filter accepts, without those that are excluded; and their new names.

    Raises ``KeyError`` for a name that does not exist, ``ValueError`` for a pattern, a prefix or a rename that is for none, and for two
    equal new names.
    """
    if all(one is None for one in (filter, names, exclude, rename, strip_prefix)):
        return Chosen(None, {})
    known = list(known)
    chosen = None
    for wanted, option in ((filter, "filter"), (None if names is None else _exact(names, known), "names")):
        selected = select(wanted, known, option)
        if selected is not None:
            chosen = selected if chosen is None else chosen & selected
    excluded = select(exclude, known, "exclude")
    if excluded is not None:
        chosen = (set(known) if chosen is None else chosen) - excluded
    if chosen is not None and not chosen and (names is None or list(names)):
        raise ValueError("filter, names and exclude leave no tensor")
    rules = renames(rename, strip_prefix)
    if not rules:
        return Chosen(chosen, {})
    kept = [name for name in known if chosen is None or name in chosen]
    return Chosen(chosen, dict(zip(kept, _core.renamed(kept, rules), strict=True)))


def renames(rename: Mapping[str, str] | None, strip_prefix: str | None) -> list[tuple[str, str]]:
    """The rules of new names, in the order in which they are applied."""
    first = [] if strip_prefix is None else [(strip_prefix, "")]
    return [*first, *(rename or {}).items()]


def _exact(names: Iterable[str], known: list[str]) -> list[str]:
    """The names, of which all exist."""
    exact, existing = [names] if isinstance(names, str) else list(names), set(known)
    for name in exact:
        if name not in existing:
            raise KeyError(name)
    return exact
