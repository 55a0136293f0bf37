"""The documents that :func:`~anamnesis.fit`, :func:`~anamnesis.diff`, :func:`~anamnesis.check` and :func:`~anamnesis.warm` return, as
types: plain dictionaries, whose fields ``docs/json.md`` describes."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Basis = Literal["exact", "formula", "bound", "not_estimated"]


class FitMemory(TypedDict):
    """Whether the memory that was given suffices."""

    nbytes: int
    fits: bool | None
    left_nbytes: int | None
    largest_context: int | None
    largest_batch: int | None


class FitRank(TypedDict):
    """One worker."""

    rank: int
    tp: int
    pp: int
    weights_nbytes: int | None
    cache_nbytes: int | None
    total_nbytes: int | None


class FitDocument(TypedDict):
    """The memory that a model takes, in bytes: one of the ``models`` of ``anamnesis fit --json``."""

    path: str | None
    model_type: str | None
    source: str | None
    layers: int | None
    context_max: int | None
    parameters: dict[str, int | None]
    engine: str
    context: int
    batch: int
    weights: dict[str, Any]
    cache: dict[str, Any]
    compute: dict[str, Any]
    overhead_nbytes: int
    extras: list[dict[str, Any]]
    ranks: list[FitRank]
    total_nbytes: int | None
    basis: Basis
    contexts: list[dict[str, int | None]]
    memory: FitMemory | None
    notes: list[str]
    unknown: list[str]


class TensorDifference(TypedDict):
    """One tensor, or a pair of them."""

    a: str | None
    b: str | None
    kind: Literal["added", "removed", "renamed", "reshaped", "retyped", "changed", "equal"]
    a_dtype: str | None
    b_dtype: str | None
    a_shape: list[int] | None
    b_shape: list[int] | None
    equal_values: bool | None
    differing: int | None
    differing_bits: int | None
    first: list[int] | None
    nmse: float | None
    max_abs: float | None
    rmse: float | None
    cosine: float | None
    note: str | None


class DiffDocument(TypedDict):
    """The differences between two checkpoints: the document of ``anamnesis diff --json``."""

    version: int
    a: dict[str, Any]
    b: dict[str, Any]
    same: bool
    headers: bool
    verdict: str
    compared: int
    counts: dict[str, int]
    tensors: list[TensorDifference]
    total: dict[str, float | None] | None
    config: dict[str, Any] | None
    metadata: dict[str, Any]
    notes: list[str]


class CheckFinding(TypedDict):
    """The finding of a rule. ``rule`` is stable, ``message`` is for people."""

    rule: str
    level: Literal["error", "warning", "note"]
    message: str
    file: str | None
    tensor: str | None
    offset: int | None
    count: int | None
    first: list[int] | None
    value: float | None
    remedy: str | None


class CheckedFile(TypedDict):
    """A file, by its path below the model's directory."""

    path: str
    nbytes: int
    sha256: str | None
    expected: str | None
    source: str | None


class CheckDocument(TypedDict):
    """Whether a model is whole and its values sane: one of the ``models`` of ``anamnesis check --json``."""

    path: str | None
    files: list[CheckedFile]
    findings: list[CheckFinding]
    tensors: list[dict[str, Any]]
    omitted: NotRequired[list[dict[str, Any]]]
    counts: dict[str, int]
    seconds: float
    nbytes: int
    sound: int
    checked: dict[str, int]
    models: list[dict[str, Any]]
    unread: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    headers: bool
    only: list[str]
    allowed: list[str]
    readable: bool
    why_idle: str | None


class WarmDocument(TypedDict):
    """Bytes of a model that are in the page cache now: ``warm`` of ``anamnesis warm --json``."""

    path: str
    models: int
    nbytes: int
    read: int
    cached: int
    seconds: float
    end: Literal["complete", "memory", "interrupted", "command"]
    unreadable: int
    errors: list[dict[str, Any]]
