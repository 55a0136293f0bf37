"""Sources that can be opened: paths and URLs, bytes, and file objects."""

from __future__ import annotations

from os import PathLike, fsdecode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._options import Source

# the beginnings of the variables with which requests can be configured
_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "HF_", "HUGGING_FACE_", "SSL_", "HTTP_", "HTTPS_", "ALL_", "NO_")


def opened(source: Source) -> Any:
    """A source as the compiled module takes it. Raises ``TypeError`` for anything that is no source."""
    if isinstance(source, (str, PathLike)):
        return fsdecode(source)
    if isinstance(source, bytes):
        if len(source) < 4096 and _names_a_file(source):
            raise TypeError(f"{source!r}: bytes are the contents of a file; a path is a str: os.fsdecode() makes one")
        return source
    if hasattr(source, "seek") and hasattr(source, "read"):
        if not seeks_to_its_end(source):
            source.seek(0)
            return source.read()
        return source
    # an `OpenFile` of fsspec is opened by a method
    if hasattr(source, "fs") and hasattr(source, "open"):
        return opened(source.open())
    return source


def content_of(file: Any) -> bytes:
    """The bytes of a file object from its position on. Raises ``TypeError`` for a file of text."""
    content = file.read()
    if not isinstance(content, bytes):
        raise TypeError(f"{type(file).__name__}: read() returns {type(content).__name__}, and not bytes: open the file in binary mode")
    return content


def _names_a_file(contents: bytes) -> bool:
    from os.path import exists

    try:
        return exists(contents)
    except ValueError:
        return False  # a zero byte


def seeks_to_its_end(file: Any) -> bool:
    """Whether a file object knows its length: a compressed one (gzip) does not before it was read."""
    if hasattr(file, "decompress") or type(file).__module__ in ("gzip", "bz2", "lzma"):
        return False
    try:
        file.seek(0, 2)
    except (OSError, ValueError):
        return False
    return True


def variables(storage_options: Mapping[str, str] | None) -> list[tuple[str, str]] | None:
    """Credentials and endpoints by the names of the environment's variables, in any case: ``aws_access_key_id``. Raises
    ``ValueError`` for a name that is none of them."""
    if storage_options is None:
        return None
    named = [(name.upper(), value) for name, value in storage_options.items()]
    for name, _ in named:
        if not name.startswith(_VARIABLES):
            raise ValueError(
                f"storage_options: {name.lower()!r} is no variable of the environment that requests use, such as aws_access_key_id, "
                "aws_secret_access_key, aws_endpoint_url, google_service_account, azure_storage_account_name or hf_token: see docs/remote.md"
            )
    return named
