"""Values of metadata, as texts of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def metadata_texts(
    option: str, values: Mapping[str, Any] | None, stored: Callable[[], _core.CoreCheckpoint] | None, *, removal: str
) -> list[tuple[str, str]]:
    """Keys, which may have a type of a GGUF behind a colon, and the texts of their values. ``stored`` opens the checkpoint whose keys have
    types already."""
    return [(key, _text(option, key, value, stored, removal)) for key, value in pairs(option, values)]


def pairs(option: str, values: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """The items of a mapping."""
    if values is None:
        return []
    if not hasattr(values, "items"):
        raise TypeError(f"{option}: a {type(values).__name__} is no mapping: {{...: ...}}")
    return list(values.items())


def _text(option: str, key: str, value: Any, stored: Callable[[], _core.CoreCheckpoint] | None, removal: str) -> str:
    if isinstance(value, str):
        return value
    # numbers, booleans and lists as JSON has them
    import json

    if value is None:
        raise TypeError(f"{option}: {key!r}: None is no value: {removal.format(key=key)}")
    try:
        text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    except TypeError:
        raise TypeError(
            f"{option}: {key!r}: a {type(value).__name__} is no value: a str, a number, a truth value, or a list of them"
        ) from None
    if _core.has_type(key):
        return text
    checkpoint = None if stored is None else stored()
    if checkpoint is not None and checkpoint.format != "gguf":
        raise TypeError(f"{option}: {key!r}: {value!r} is no text, and the values of {checkpoint.format} are texts: {text!r}")
    if checkpoint is None or key not in checkpoint.metadata_keys():
        raise TypeError(f"{option}: {key!r}: {value!r} is no text: a new key of a GGUF needs a type, such as {key + ':u32'!r}")
    if isinstance(checkpoint.metadata(key), str):
        raise TypeError(f"{option}: {key!r}: {value!r} is no text, which the key has: {text!r}, or a type behind the key")
    return text
