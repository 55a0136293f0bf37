"""Tensors for any framework, by the protocols of DLPack and of buffers."""

from __future__ import annotations

import gc
from pathlib import Path

import anamnesis
import numpy as np
import pytest
from anamnesis import _core

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARDED = FIXTURES / "safetensors" / "sharded"
DTYPES = FIXTURES / "safetensors" / "all_dtypes.safetensors"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"
NAME = "lm_head.weight"


def test_tensors_are_those_of_the_file() -> None:
    arrays = anamnesis.load(DTYPES, "np")
    compared = 0
    for name, tensor in anamnesis.load(DTYPES, "dlpack").items():
        if arrays[name].dtype.isbuiltin != 1:
            continue  # numpy takes no dtype of ml_dtypes
        array = np.from_dlpack(tensor)
        assert array.dtype == arrays[name].dtype and array.tobytes() == arrays[name].tobytes(), name
        compared += 1
    assert compared > 10


def test_every_dtype_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    expected = anamnesis.load(DTYPES, "pt")
    for name, tensor in anamnesis.load(DTYPES, "dlpack").items():
        made = torch.from_dlpack(tensor)
        assert made.dtype == expected[name].dtype and made.shape == expected[name].shape, name
        assert torch.equal(made.view(torch.uint8), expected[name].view(torch.uint8)), name


def test_blocks_are_bytes() -> None:
    tensor = anamnesis.open(GGUF)["blk.0.attn_q.weight"]
    assert np.array_equal(np.from_dlpack(tensor.to("dlpack")), tensor.numpy())
    assert tensor.to("dlpack").dtype == "Q8_0"


def test_memory_outlives_what_it_came_from_and_is_given_back() -> None:
    expected = anamnesis.load(DTYPES, "np")["t.06.i16"]
    gc.collect()
    before, _ = _core.pool_bytes()
    array = np.from_dlpack(anamnesis.open(DTYPES).load("dlpack", borrow=False)["t.06.i16"])
    gc.collect()
    assert np.array_equal(array, expected)
    assert _core.pool_bytes()[0] > before
    del array
    gc.collect()
    assert _core.pool_bytes()[0] == before


def test_a_capsule_that_is_not_taken_is_freed() -> None:
    gc.collect()
    before, _ = _core.pool_bytes()
    for version in (None, (1, 1)):
        tensor = anamnesis.open(SHARDED).load("dlpack", names=[NAME], borrow=False)[NAME]
        capsules = [tensor.__dlpack__(max_version=version) for _ in range(100)]
        del tensor
        gc.collect()
        assert _core.pool_bytes()[0] > before, "the capsules hold the memory"
        del capsules
        gc.collect()
        assert _core.pool_bytes()[0] == before


def test_a_copy_has_memory_of_its_own() -> None:
    tensor = anamnesis.load(DTYPES, "dlpack")["t.08.u8"]
    same, copy = np.from_dlpack(tensor), np.from_dlpack(tensor, copy=True)
    same[...] = 7
    assert not (copy == 7).all() and (np.from_dlpack(tensor) == 7).all()
    # the file and other loads have what they had
    assert np.array_equal(anamnesis.load(DTYPES, "np")["t.08.u8"], copy)


def test_what_memory_of_the_processor_cannot_be_is_refused() -> None:
    tensor = anamnesis.load(DTYPES, "dlpack")["t.08.u8"]
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        tensor.__dlpack__(stream=1)
    with pytest.raises(ValueError, match="cuda"):
        anamnesis.load(DTYPES, "dlpack", device="cuda")
    with pytest.raises(ValueError, match="range of each axis"):
        anamnesis.open(DTYPES)["t.08.u8"].to("dlpack", (0, slice(None)))
    with pytest.raises(ValueError, match="bytes"):
        _core.dlpack(tensor._memory, 1, 8, 1, (len(tensor._memory) + 1,), versioned=True)
    with pytest.raises(ValueError):
        _core.dlpack(tensor._memory, 1, 8, 1, (-1,), versioned=True)
    with pytest.raises(ValueError):
        _core.dlpack(tensor._memory, 1, 8, 1, (1 << 62, 1 << 62, 0), versioned=True)


def test_a_range_is_loaded_alone() -> None:
    whole = anamnesis.load(SHARDED, "np", names=[NAME])[NAME].view(np.uint16)
    part = anamnesis.open(SHARDED)[NAME].to("dlpack", (slice(2, 5), slice(0, 4)))
    assert part.shape == (3, 4)
    torch = pytest.importorskip("torch")
    assert np.array_equal(torch.from_dlpack(part).view(torch.uint16).numpy(), whole[2:5, :4])


def test_stored_bytes_have_a_name_of_their_own() -> None:
    tensor = anamnesis.open(SHARDED)[NAME]
    stored = tensor.raw()
    assert bytes(stored) == tensor.numpy().tobytes() and stored.nbytes == tensor.nbytes


@pytest.mark.parametrize("shape", [(5,), (2, -1), (0,), (1 << 62, 1 << 62, 0)])
def test_elements_that_do_not_fill_the_memory_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="elements"):
        _core.elements(_core.new_memory(16), "f", shape)
    with pytest.raises(ValueError, match="format"):
        _core.elements(_core.new_memory(16), "g", (1,))
