"""Loading to a device through pinned memory: with copies that are late, as a GPU's are, and with a GPU where there is
one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anamnesis
import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")

from anamnesis import _device  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARDED = FIXTURES / "safetensors" / "sharded"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"
FILES = [SHARDED, GGUF, FIXTURES / "safetensors" / "all_dtypes.safetensors", FIXTURES / "pth" / "tied.pth"]


class LateCopies:
    """Copies that run when they are waited for: what changes in a slot before that is seen."""

    def __init__(self) -> None:
        self.pending: list[tuple[Any, Any]] = []
        self.slots: list[int] = []
        self.finished = False

    def slot(self, nbytes: int) -> Any:
        self.slots.append(nbytes)
        return torch.full((nbytes,), 0xAA, dtype=torch.uint8)

    def copy(self, host: Any) -> Any:
        made = torch.empty_like(host)
        self.pending.append((made, host))
        return made

    def mark(self) -> int:
        return len(self.pending)

    def wait(self, mark: int) -> None:
        for number in range(mark):
            made, host = self.pending[number]
            if made is not None:
                made.copy_(host)
                self.pending[number] = (None, None)

    def finish(self) -> None:
        self.finished = True


def bits(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
@pytest.mark.parametrize("slot", [1, 1000, 5000, 1 << 20])
def test_tensors_are_those_of_a_load(path: Path, slot: int) -> None:
    checkpoint = anamnesis.open(path)
    expected = checkpoint.load("pt", borrow=False)
    copies = LateCopies()
    reported: list[tuple[int, int]] = []
    found = _device.load(checkpoint, copies, list(checkpoint), {}, slot_bytes=slot, progress=lambda *at: reported.append(at))
    assert list(found) == list(expected) and found.loader and copies.finished
    for name, tensor in found.items():
        assert (tensor.dtype, tensor.shape) == (expected[name].dtype, expected[name].shape), name
        assert bits(tensor) == bits(expected[name]), name
    done, total = reported[-1]
    assert done == total and reported == sorted(reported)
    largest = max(tensor.nbytes for tensor in checkpoint.values())
    assert all(nbytes <= max(slot, largest) for nbytes in copies.slots)


def test_ties_stay() -> None:
    checkpoint = anamnesis.open(FIXTURES / "pth" / "tied.pth")
    assert checkpoint.tied == {"head.weight": "emb.weight"}
    assert checkpoint["head.weight"].tied_to == "emb.weight" and checkpoint["emb.weight"].tied_to is None
    found = _device.load(checkpoint, LateCopies(), list(checkpoint), {})
    assert found["head.weight"].data_ptr() == found["emb.weight"].data_ptr()
    assert found["flat"].data_ptr() != found["emb.weight"].data_ptr(), "of another shape"
    # a part is no tie
    part = {"head.weight": checkpoint["head.weight"].selection(slice(0, 2))}
    found = _device.load(checkpoint, LateCopies(), list(checkpoint), part)
    assert found["head.weight"].shape == (2, 4) and found["head.weight"].data_ptr() != found["emb.weight"].data_ptr()
    alone = _device.load(checkpoint, LateCopies(), ["head.weight"], {})
    assert bits(alone["head.weight"]) == bits(checkpoint["emb.weight"].torch())


def test_indices_select_on_the_device() -> None:
    checkpoint = anamnesis.open(SHARDED)
    for index in [(slice(2, 9), slice(0, 4)), 3, (..., slice(None, None, 3)), (slice(4, 0, -2), None), slice(0, 0)]:
        chosen = {"lm_head.weight": checkpoint["lm_head.weight"].selection(index)}
        found = _device.load(checkpoint, LateCopies(), ["lm_head.weight"], chosen)["lm_head.weight"]
        expected = checkpoint["lm_head.weight"].torch(index)
        assert found.shape == expected.shape and bits(found) == bits(expected), index


def test_an_error_leaves_no_copy_behind() -> None:
    checkpoint = anamnesis.open(FIXTURES / "safetensors" / "all_dtypes.safetensors")

    class Ended(Exception):
        pass

    def end(done: int, total: int) -> None:
        if done > total // 2:
            raise Ended

    copies = LateCopies()
    with pytest.raises(Ended):
        _device.load(checkpoint, copies, list(checkpoint), {}, slot_bytes=100, progress=end)
    assert copies.finished and copies.pending and all(made is None for made, _ in copies.pending)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="SKIPPED: no GPU")


@needs_gpu
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_a_gpu_has_the_tensors_of_a_load(path: Path) -> None:
    expected = anamnesis.load(path, "pt")
    found = anamnesis.load(path, "pt", device="cuda")
    for name, tensor in found.items():
        assert tensor.device.type == "cuda" and tensor.dtype == expected[name].dtype, name
        assert bits(tensor.cpu()) == bits(expected[name]), name


@needs_gpu
def test_a_gpu_gets_shares_and_parts() -> None:
    expected = anamnesis.load(SHARDED, "pt", tp=(0, 2), rules={"lm_head.*": "column"})
    found = anamnesis.load(SHARDED, "pt", device="cuda", tp=(0, 2), rules={"lm_head.*": "column"})
    assert all(bits(tensor.cpu()) == bits(expected[name]) for name, tensor in found.items())
    part = anamnesis.load(SHARDED, "pt", device="cuda", names=["lm_head.weight"], slices={"lm_head.weight": (slice(3, 5), 1)})
    assert bits(part["lm_head.weight"].cpu()) == bits(anamnesis.open(SHARDED)["lm_head.weight"].torch((slice(3, 5), 1)))
