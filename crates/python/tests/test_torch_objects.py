"""``anamnesis.torch.load`` returns what ``torch.load(weights_only=True)`` returns, for every file that PyTorch reads."""

from __future__ import annotations

import io
import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anamnesis  # noqa: E402
import anamnesis.torch  # noqa: E402

REPO = Path(__file__).resolve().parents[3]
FIXTURES = REPO / "fixtures"
CORPUS = REPO.parent / "shared" / "corpus"


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in (".pt", ".pth", ".bin") and p.is_file())


class Comparison:
    """Compares two objects, each pair once, and which tensors of each share a storage."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.ties: dict[int, int] = {}

    def compare(self, ours: Any, theirs: Any, where: str) -> None:
        if (id(ours), id(theirs)) in self.seen:
            return
        self.seen[id(ours), id(theirs)] = (ours, theirs)
        assert type(ours) is type(theirs), where
        if isinstance(theirs, torch.Tensor):
            self.tensor(ours, theirs, where)
        elif isinstance(theirs, dict):
            assert list(ours) == list(theirs), where
            for key in theirs:
                self.compare(ours[key], theirs[key], f"{where}[{key!r}]")
            if isinstance(theirs, OrderedDict):
                self.compare(ours.__dict__, theirs.__dict__, f"{where}.__dict__")
        elif isinstance(theirs, list | tuple):
            assert len(ours) == len(theirs), where
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                self.compare(a, b, f"{where}[{i}]")
        elif isinstance(theirs, torch.UntypedStorage | torch.TypedStorage):
            assert bytes(ours.untyped()) == bytes(theirs.untyped()), where
        else:
            assert ours == theirs or ours != ours, where

    def tensor(self, ours: Any, theirs: Any, where: str) -> None:
        for attribute in ("dtype", "shape", "layout", "device", "requires_grad", "is_quantized"):
            assert getattr(ours, attribute) == getattr(theirs, attribute), (where, attribute)
        self.compare(ours.__dict__, theirs.__dict__, f"{where}.__dict__")
        if theirs.layout == torch.sparse_coo:
            assert ours.is_coalesced() == theirs.is_coalesced(), where
            self.compare(ours._indices(), theirs._indices(), f"{where}.indices")
            self.compare(ours._values(), theirs._values(), f"{where}.values")
            return
        if theirs.layout != torch.strided:
            self.compare(ours.values(), theirs.values(), f"{where}.values")
            assert torch.equal(ours.to_dense(), theirs.to_dense()), where
            return
        assert ours.stride() == theirs.stride(), where
        if theirs.device.type == "meta":
            return
        assert ours.storage_offset() == theirs.storage_offset(), where
        assert ours.is_conj() == theirs.is_conj() and ours.is_neg() == theirs.is_neg(), where
        if theirs.is_quantized:
            assert ours.qscheme() == theirs.qscheme(), where
            if theirs.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
                assert (ours.q_scale(), ours.q_zero_point()) == (theirs.q_scale(), theirs.q_zero_point()), where
            else:
                assert torch.equal(ours.q_per_channel_scales(), theirs.q_per_channel_scales()), where
                assert torch.equal(ours.q_per_channel_zero_points(), theirs.q_per_channel_zero_points()), where
        mine, other = ours.untyped_storage(), theirs.untyped_storage()
        assert mine.nbytes() == other.nbytes(), where
        if other.nbytes():
            # one storage of theirs is one of ours
            assert self.ties.setdefault(other.data_ptr(), mine.data_ptr()) == mine.data_ptr(), where
            assert torch.equal(as_bytes(mine), as_bytes(other)), where


def as_bytes(storage: Any) -> Any:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def check(path: Path, refused: list[str]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        refused.append(f"{path.name}: {type(error).__name__}")
        return False
    ours = anamnesis.torch.load(path)
    comparison = Comparison()
    comparison.compare(ours, theirs, path.name)
    assert len(set(comparison.ties.values())) == len(comparison.ties), path
    return True


def test_fixtures_are_what_pytorch_loads(capsys: pytest.CaptureFixture[str]) -> None:
    refused: list[str] = []
    compared = sum(check(path, refused) for path in files(FIXTURES / "pth"))
    with capsys.disabled():
        print(f"\nequal: {compared}; PyTorch refuses: {', '.join(refused)}")
    assert compared > 80


@pytest.mark.parametrize("part", ["public", "real"])
def test_the_shared_corpus_is_what_pytorch_loads(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not (CORPUS / part).is_dir():
        pytest.skip(f"SKIPPED: {CORPUS / part} is not beside the checkout")
    refused: list[str] = []
    compared, differ = 0, []
    for path in files(CORPUS / part):
        try:
            compared += check(path, refused)
        except (AssertionError, anamnesis.AnamnesisError) as error:
            differ.append(f"{path}: {type(error).__name__}: {str(error)[:200]}")
    with capsys.disabled():
        print(f"\nequal: {compared}; PyTorch refuses {len(refused)}: {', '.join(refused)}")
    assert not differ, "\n".join(differ)
    assert compared > 0


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_values_and_cycles_of_every_kind() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    parameter = torch.nn.Parameter(weight[1:], requires_grad=False)
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    shared: list[Any] = []
    for _ in range(60):
        shared = [shared, shared]
    value = {
        1: 2**70, -1: -(2**200), None: 1.5, "bytes": b"bytes" * 2000, (1, "a"): bytearray(b"x"), 2.5: complex(1, -2),
        "ordered": OrderedDict(b=1, a=2), "counter": Counter("aab"), "set": {1, 2}, "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16, "device": torch.device("cpu"), "cyclic": cyclic, "shared": shared,
        "weight": weight, "tied": parameter, "transposed": weight.T, "storage": torch.arange(3, dtype=torch.uint8).untyped_storage(),
        "module": torch.nn.Linear(2, 3).state_dict(),
    }  # fmt: skip
    data = saved(value)
    ours = anamnesis.torch.load(data)
    Comparison().compare(ours, torch.load(io.BytesIO(data), weights_only=True), "")
    assert ours["cyclic"][1] is ours["cyclic"]
    assert ours["shared"][0] is ours["shared"][1]
    assert ours["weight"].untyped_storage().data_ptr() == ours["tied"].untyped_storage().data_ptr()
    assert abs(len(saved(ours)) - len(data)) < 256  # one storage, as before


def test_what_is_written_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save({"w": torch.zeros(100_000)}, path)
    for mmap in (None, True, False):
        loaded = anamnesis.torch.load(path, mmap=mmap)
        assert not loaded["w"].any()
        loaded["w"].fill_(1)
    assert not torch.load(path)["w"].any()


def test_other_formats_and_devices() -> None:
    loaded = anamnesis.torch.load(FIXTURES / "safetensors" / "sharded")
    assert loaded["lm_head.weight"].dtype.is_floating_point
    meta = anamnesis.torch.load(FIXTURES / "pth" / "tied.pth", map_location="meta")
    assert all(t.device.type == "meta" for t in meta.values() if isinstance(t, torch.Tensor))


def test_refusals_name_the_file_and_the_thing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weights_only"):
        anamnesis.torch.load(FIXTURES / "pth" / "tied.pth", weights_only=False)
    with pytest.raises(anamnesis.RefusedGlobalError) as refused:
        anamnesis.torch.load(FIXTURES / "pth" / "evil" / "eval_value.pth")
    assert refused.value.path is not None
    path = tmp_path / "class.pth"
    torch.save({"a": {"b": frozenset}}, path)
    with pytest.raises(anamnesis.UnsupportedError, match="named as a value") as unsupported:
        anamnesis.torch.load(path)
    assert str(path) in str(unsupported.value) and "['a']['b']" in str(unsupported.value)
    opaque = anamnesis.torch.load(FIXTURES / "pth" / "values" / "opaque.pth", opaque=True)
    assert opaque["args"].class_name == "argparse.Namespace"
    assert isinstance(opaque["args"].state, dict)
    # a class of floats labels them
    assert type(opaque["labelled"]) is torch.Tensor and opaque["labelled"].is_floating_point()
