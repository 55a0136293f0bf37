"""Parts of tensors: indices against numpy's own, and the shares of workers, which make up the whole."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARDED = FIXTURES / "safetensors" / "sharded"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"


def file_of(array: np.ndarray) -> bytes:
    """A safetensors file with one tensor of 32-bit integers."""
    entry = {"dtype": "I32", "shape": list(array.shape), "data_offsets": [0, array.nbytes]}
    text = json.dumps({"t": entry}).encode()
    return struct.pack("<Q", len(text)) + text + array.astype("<i4").tobytes()


def random_index(of: random.Random, shape: tuple[int, ...]) -> Any:
    def bound(size: int) -> int | None:
        return of.choice([None, of.randint(-size - 2, size + 2)])

    entries: list[Any] = []
    for size in shape[: of.randint(0, len(shape))]:
        if size and of.random() < 0.3:
            entries.append(of.choice([int, np.int64])(of.randint(-size, size - 1)))
        else:
            entries.append(slice(bound(size), bound(size), of.choice([None, 1, 2, 3, -1, -2, -7])))
    if of.random() < 0.4:
        # the entries after it count from the end: these axes may differ in size, so that only ranges are put there
        at = of.randint(0, len(entries))
        entries[at:] = [Ellipsis, *(e if isinstance(e, slice) else slice(None) for e in entries[at:])]
    for _ in range(of.choice([0, 0, 1, 2])):
        entries.insert(of.randint(0, len(entries)), None)
    return entries[0] if len(entries) == 1 and of.random() < 0.5 else tuple(entries)


@pytest.mark.parametrize("seed", range(40))
def test_any_basic_index_selects_as_numpy_does(seed: int) -> None:
    of = random.Random(seed)
    shape = tuple(of.choice([0, 1, 2, 3, 5, 8]) for _ in range(of.randint(0, 4)))
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    checkpoint = anamnesis.open(file_of(array))
    for _ in range(50):
        index = random_index(of, shape)
        expected, found = array[index], checkpoint["t"][index]
        assert np.shape(found) == np.shape(expected), (shape, index)
        assert np.array_equal(found, expected), (shape, index)
        assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray), (shape, index)
        loaded = checkpoint.load("np", slices={"t": index})["t"]
        assert np.array_equal(loaded, expected), (shape, index)
        ((_, streamed),) = checkpoint.stream("np", slices={"t": index})
        assert np.array_equal(streamed, expected), (shape, index)


@pytest.mark.parametrize("seed", range(10))
def test_pytorch_selects_the_same_with_negative_steps_too(seed: int) -> None:
    pytest.importorskip("torch")
    of = random.Random(seed)
    shape = tuple(of.choice([1, 2, 3, 5, 8]) for _ in range(of.randint(0, 4)))
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    tensor = anamnesis.open(file_of(array))["t"]
    for _ in range(50):
        index = random_index(of, shape)
        found = tensor.torch(index)
        assert tuple(found.shape) == np.shape(array[index]) and np.array_equal(found.numpy(), array[index]), (shape, index)


def test_masks_and_arrays_select_from_the_whole() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    tensor = anamnesis.open(file_of(array))["t"]
    for index in [array % 5 == 0, [2, 0], np.array([1, 3]), (slice(1, 3), [0, 5]), True]:
        assert np.array_equal(tensor[index], array[index]), index
    with pytest.raises(IndexError, match="too many"):
        tensor[0, 0, 0]
    with pytest.raises(IndexError, match="axis 1"):
        tensor[:, 6]
    with pytest.raises(IndexError, match="one ellipsis"):
        tensor[..., ...]


def test_only_the_box_is_read(tmp_path: Path) -> None:
    array = np.arange(64, dtype=np.int32).reshape(8, 8)
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_of(array))
    seen: list[int] = []
    checkpoint = anamnesis.open(path)
    checkpoint.load("np", slices={"t": (slice(2, 8, 2), 3)}, progress=lambda done, total: seen.append(total))
    assert seen[-1] == 5 * 4  # rows 2 to 6 of one column


def test_indices_of_blocks_are_whole_blocks() -> None:
    tensor = anamnesis.open(GGUF)["blk.0.attn_q.weight"]
    whole = tensor.numpy()
    assert np.array_equal(tensor[1:3, 32:64], whole[1:3, 34:68])
    assert np.array_equal(tensor[::-2], whole[::-2])
    assert np.array_equal(tensor[5], whole[5])
    mask = np.arange(len(whole)) % 3 == 0
    for rows in [mask, [4, 1], np.array([0, 2]), (None, mask)]:
        assert np.array_equal(tensor[rows], whole[rows]), rows
    with pytest.raises(ValueError, match="whole blocks"):
        tensor[[0, 1], [2, 3]]
    for index in [(0, slice(3, 40)), (slice(None), 3), (..., slice(0, 64, 3)), (..., slice(None, None, -1))]:
        with pytest.raises(ValueError):
            tensor[index]
    with pytest.raises(ValueError, match=r"cut blocks of 32 elements \(Q8_0\).*\.remember\(index=…\)"):
        tensor[:, 3:40]


def test_a_part_of_a_dequantised_weight_is_that_of_the_whole() -> None:
    checkpoint = anamnesis.open(GGUF)
    tensor = checkpoint["blk.0.attn_q.weight"]
    whole = tensor.remember("np", "float32")
    for index in [(slice(1, 9, 3), slice(3, 40)), (..., 5), 7, slice(None, None, -2), (2, 3), None]:
        assert np.array_equal(tensor.remember("np", "float32", index=index), whole[index]), index
    made = checkpoint.remember("np", dtype="float32", slices={tensor.name: (slice(None), slice(3, 40))})
    assert np.array_equal(made[tensor.name], whole[:, 3:40]) and len(made) == len(checkpoint)


@pytest.mark.parametrize("world", [2, 3])
def test_the_shares_of_all_workers_are_the_weights(world: int) -> None:
    checkpoint = anamnesis.open(FIXTURES / "model" / "scribe.safetensors")
    whole = checkpoint.load("np")
    name = next(name for name in whole if name.endswith("q_proj.weight"))
    rules = {"*q_proj.weight": "row", "*norm*": "replicate", "*": "column"}
    shares = [checkpoint.load("np", names=[name], tp=(rank, world), rules=rules)[name] for rank in range(world)]
    assert all(share.shape[1] < whole[name].shape[1] for share in shares)
    assert np.array_equal(np.concatenate(shares, axis=1), whole[name])
    streamed = dict(checkpoint.stream("np", tp=(1, world), rules=rules))
    assert np.array_equal(streamed[name], shares[1])
    made = checkpoint.remember("np", filter=[name], tp=(1, world), rules=rules)
    assert np.array_equal(made[name], shares[1])
    norm = next(name for name in whole if "norm" in name)
    assert streamed[norm].shape == whole[norm].shape


def test_dequantised_loads_have_the_names_of_pytorch() -> None:
    checkpoint = anamnesis.open(GGUF)
    loaded = checkpoint.load("np", dequantise=True)
    expected = checkpoint.remember("np", naming="hf")
    assert "model.embed_tokens.weight" in loaded and loaded.keys() == expected.keys()
    assert all(np.array_equal(loaded[name], expected[name]) for name in loaded)
    one = checkpoint.load("np", dequantise=True, filter="*norm*", names=["model.norm.weight", "model.embed_tokens.weight"])
    assert list(one) == ["model.norm.weight"]


def test_wrong_parts_are_refused() -> None:
    checkpoint = anamnesis.open(SHARDED)
    name = "lm_head.weight"
    for wrong, text in [
        (lambda: checkpoint.load("np", tp=(2, 2)), "rank"),
        (lambda: checkpoint.load("np", tp=(0, 2), slices={name: 0}), "slices and tp"),
        (lambda: checkpoint.load("np", rules={"*": "row"}), "rules without tp"),
        (lambda: checkpoint.load("np", tp=(0, 2), rules={"*": "diagonal"}), "diagonal"),
        (lambda: checkpoint.load("np", dequantise=True, borrow=True), "dequantise"),
    ]:
        with pytest.raises(ValueError, match=text):
            wrong()
    for unknown in [{"slices": {"none": 0}}, {"names": ["none"]}]:
        with pytest.raises(KeyError):
            checkpoint.load("np", **unknown)
        with pytest.raises(KeyError):
            checkpoint.stream("np", **unknown)
    assert list(checkpoint.load("np", names=[name], filter="lm*")) == [name]
