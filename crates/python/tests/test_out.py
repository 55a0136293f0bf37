"""Loading into memory of the caller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SAFETENSORS = sorted((FIXTURES / "safetensors").glob("*.safetensors"))
SHARDED = FIXTURES / "safetensors" / "sharded"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"
NAME = "lm_head.weight"


@pytest.mark.parametrize("path", [SHARDED, GGUF, *SAFETENSORS], ids=lambda p: p.name)
@pytest.mark.parametrize("framework", ["np", "pt"])
def test_memory_of_the_caller_gets_what_a_load_has(path: Path, framework: str) -> None:
    torch = pytest.importorskip("torch") if framework == "pt" else None
    try:
        checkpoint = anamnesis.open(path)
        expected = checkpoint.load(framework)
    except (anamnesis.AnamnesisError, TypeError, ValueError) as e:  # errors of numpy and PyTorch: sizes that they do not have
        pytest.skip(f"refused: {e}")

    def bits(tensor: Any) -> bytes:
        if 0 in tensor.shape:
            return b""  # PyTorch has no view of one axis of it
        return tensor.tobytes() if torch is None else tensor.reshape(-1).view(torch.uint8).numpy().tobytes()

    def empty(tensor: Any) -> Any:
        return np.full_like(tensor, 0) if torch is None else torch.empty_like(tensor)

    out = {name: empty(tensor) for name, tensor in expected.items()}
    loaded = checkpoint.load(framework, out=out)
    assert loaded.keys() == expected.keys() and loaded.loader
    for name in expected:
        assert loaded[name] is out[name]
        assert bits(out[name]) == bits(expected[name]), name


def test_boxes_and_shares_are_loaded_into_memory() -> None:
    checkpoint = anamnesis.open(SHARDED)
    whole = checkpoint[NAME].numpy()
    box = np.zeros((8, 8), whole.dtype)
    checkpoint.load("np", out={NAME: box}, slices={NAME: (slice(8, 16), slice(4, 12))})
    assert box.tobytes() == whole[8:16, 4:12].tobytes()
    share = np.zeros((16, 16), whole.dtype)
    checkpoint.load("np", out={NAME: share}, tp=(1, 2), rules={"*": "column"})
    assert share.tobytes() == whole[16:].tobytes()
    with pytest.raises(ValueError, match="lm_head.*bytes"):
        checkpoint.load("np", out={NAME: share[:8]}, tp=(1, 2), rules={"*": "column"})


def test_memory_that_does_not_fit_is_refused_by_name() -> None:
    checkpoint = anamnesis.open(SHARDED)
    whole = checkpoint[NAME].numpy()
    read_only = whole.copy()
    read_only.flags.writeable = False
    for wrong, text in [
        (np.zeros(whole.shape, np.uint8), "uint8"),
        (np.zeros((16, 32), whole.dtype), "shape"),
        (np.zeros((32, 32), whole.dtype)[:, ::2], "contiguous"),
        (read_only, "writable"),
        ([0.0], "list"),
    ]:
        with pytest.raises(ValueError, match=f"lm_head.weight.*{text}"):
            checkpoint.load("np", out={NAME: wrong})
    with pytest.raises(ValueError, match="without steps"):
        checkpoint.load("np", out={NAME: whole}, slices={NAME: slice(None, None, 2)})
    with pytest.raises(KeyError):
        checkpoint.load("np", out={"none": whole})
    for option in [{"filter": "*"}, {"dequantise": True}, {"borrow": True}]:
        with pytest.raises(ValueError, match="out:"):
            checkpoint.load("np", out={NAME: whole}, **option)
    both = np.zeros((40, 16), whole.dtype)
    other = next(name for name in checkpoint if name != NAME and checkpoint[name].shape == (32, 16))
    with pytest.raises(ValueError, match="overlaps"):
        checkpoint.load("np", out={NAME: both[:32], other: both[8:]})
    with pytest.raises(ValueError, match="cannot be written"):
        checkpoint.load("jax", out={NAME: whole})


def test_a_released_storage_is_refused() -> None:
    torch = pytest.importorskip("torch")
    checkpoint = anamnesis.open(SHARDED)
    whole = checkpoint[NAME].torch()
    for nbytes in (0, 8, whole.nbytes - 1):
        given = torch.empty_like(whole)
        # as FSDP releases parameters: dtype and shape stay
        given.untyped_storage().resize_(nbytes)
        with pytest.raises(ValueError, match=rf"'{NAME}'.*storage.*{nbytes} bytes"):
            checkpoint.load("pt", out={NAME: given})
    # a part of a longer storage
    given = torch.empty(whole.numel() + 8, dtype=whole.dtype)[8:].view(whole.shape)
    checkpoint.load("pt", out={NAME: given})
    assert torch.equal(given.view(torch.uint8), whole.view(torch.uint8))
