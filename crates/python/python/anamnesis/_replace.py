"""Functions of another package, which are replaced while a context is entered."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from inspect import signature
from threading import Lock
from typing import Any, NamedTuple


class Replaced(NamedTuple):
    """A function that a module calls by a name of its own. ``make`` returns, of the original, the function that takes its place.

    ``parameters``: the parameters of the replacement. An original that has others belongs to another version, and is
    refused.
    """

    module: str
    name: str
    make: Callable[[Any], Callable[..., Any]]
    parameters: tuple[str, ...] | None = None


class Replacements:
    """A context manager, which may be entered several times, by one thread or by several.

    The functions belong to the whole process: while any thread is in the context, all threads call the replacements, so that
    pools of threads which a load starts do so too. The last one that leaves restores the originals. A module that has copied
    a replacement in the meantime, as ``from … import`` does, calls the original by it from then on.
    """

    def __init__(self, package: str, rows: list[Replaced]) -> None:
        self._package, self._rows = package, rows
        # held while the functions are exchanged, and for what follows
        self._lock = Lock()
        self._entered = 0
        self._made: list[tuple[Any, str, Any, Callable[..., Any]]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._entered == 0:
                # all are found before one is replaced
                self._made = [self._find(row) for row in self._rows]
                for module, name, _, replacement in self._made:
                    setattr(module, name, replacement)
            self._entered += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered:
                return
            for module, name, original, replacement in self._made:
                # another program may have replaced it since, and restores it itself
                if getattr(module, name) is replacement:
                    setattr(module, name, original)
            self._made = []

    def _find(self, row: Replaced) -> tuple[Any, str, Any, Callable[..., Any]]:
        try:
            module = import_module(row.module)
            original = getattr(module, row.name)
        except (ModuleNotFoundError, AttributeError) as error:
            package = import_module(self._package)
            if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(self._package):
                # a module that the package itself needs
                raise
            raise self._refusal(package, f"has no {row.module}.{row.name}") from error
        if row.parameters is not None:
            unknown = set(signature(original).parameters) - set(row.parameters)
            if unknown:
                what = f"calls {row.module}.{row.name} with {', '.join(sorted(unknown))}"
                raise self._refusal(import_module(self._package), what)
        return module, row.name, original, self._switch(original, row.make(original))

    def _switch(self, original: Any, replacement: Callable[..., Any]) -> Callable[..., Any]:
        # without the attributes of a class, which a function does not have
        @wraps(original, updated=())
        def switch(*args: Any, **kwargs: Any) -> Any:
            return (replacement if self._entered else original)(*args, **kwargs)

        return switch

    def _refusal(self, package: Any, what: str) -> ImportError:
        version = getattr(package, "__version__", "of an unknown version")
        text = f"{self._package} {version} {what}: this version of anamnesis does not know how it reads files"
        return ImportError(text, name=self._package)
