"""The common part of the tests of transformers and diffusers."""

from __future__ import annotations

from typing import Any

import torch


def equal(ours: Any, theirs: Any) -> bool:
    """Whether two models have the same weights, bit for bit."""
    found, expected = ours.state_dict(), theirs.state_dict()
    assert list(found) == list(expected) and expected
    return all(found[name].dtype == expected[name].dtype and torch.equal(found[name], expected[name]) for name in expected)


def forbidden(*_: Any, **__: Any) -> Any:
    """Replaces a function that must not be called."""
    raise AssertionError("a file was read by another package")
