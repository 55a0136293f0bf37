"""Files that are converted, and files that a program writes tensor by tensor, read by the real readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARDED = FIXTURES / "safetensors" / "sharded"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"


def contents(path: Path | str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    checkpoint = anamnesis.open(path)
    return {name: (tensor.dtype, tensor.shape, tensor.numpy().tobytes()) for name, tensor in checkpoint.items()}


def test_shards_are_merged_renamed_and_filtered(tmp_path: Path) -> None:
    out = tmp_path / "one.safetensors"
    made = anamnesis.convert(SHARDED, out, rename={"model": "net"}, metadata={"license": "mit"})
    assert made == [str(out)]
    expected = {name.replace("model.", "net.", 1) if name.startswith("model.") else name: t for name, t in contents(SHARDED).items()}
    assert contents(out) == expected
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(out, "np") as file:
        assert set(file.keys()) == set(expected) and file.metadata()["license"] == "mit"
    with pytest.raises(FileExistsError):
        anamnesis.convert(SHARDED, out)
    anamnesis.convert(out, out.with_name("head.safetensors"), filter="lm_head.*", metadata={"license": None})
    assert list(contents(out.with_name("head.safetensors"))) == ["lm_head.weight"]
    assert "license" not in anamnesis.open(out.with_name("head.safetensors")).metadata
    anamnesis.convert(out, out.with_name("rest.safetensors"), exclude=["lm_head.weight"])
    both = [out.with_name("rest.safetensors"), out.with_name("head.safetensors")]
    anamnesis.convert(both, out, overwrite=True)
    assert contents(out) == expected
    with pytest.raises(ValueError, match="no tensor is renamed"):
        anamnesis.convert(out, tmp_path / "x.safetensors", rename={"nothing": "else"})
    with pytest.raises(KeyError):
        anamnesis.convert(out, tmp_path / "x.safetensors", filter=["absent"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head.safetensors", "one.safetensors", "rest.safetensors"]


def test_gguf_is_split_and_dequantised(tmp_path: Path) -> None:
    files = anamnesis.convert(GGUF, tmp_path / "parts", shard_size=100_000)
    assert len(files) == 2
    assert contents(tmp_path / "parts") == contents(GGUF)
    anamnesis.convert(anamnesis.open(GGUF), tmp_path / "f16.gguf", dtype="float16")
    expected = anamnesis.open(GGUF).remember("np", dtype="float16")
    made = anamnesis.open(tmp_path / "f16.gguf").load("np")
    assert all(made[name].tobytes() == expected[name].tobytes() for name in expected)
    with pytest.raises(anamnesis.UnsupportedError):
        anamnesis.convert(GGUF, tmp_path / "blocks.safetensors")
    share = anamnesis.convert(SHARDED, tmp_path / "rank1.safetensors", tp=(1, 2))
    assert anamnesis.open(share[0]).nbytes < anamnesis.open(SHARDED).nbytes
    with pytest.raises(ValueError, match="no rank"):
        anamnesis.convert(SHARDED, tmp_path / "rank2.safetensors", tp=(2, 2))


ARRAYS = {
    "w": np.arange(700 * 512, dtype=np.float32).reshape(700, 512),
    "half": np.arange(6, dtype=np.float16).reshape(2, 3),
    "i8": np.arange(-5, 5, dtype=np.int8),
    "i64": np.array([1 << 40, -1]),
}
DTYPES = {"float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64"}
SHAPES = {name: (DTYPES[str(array.dtype)], array.shape) for name, array in ARRAYS.items()}


@pytest.mark.parametrize("ending", ["safetensors", "gguf", "npz"])
def test_arrays_are_written_one_by_one(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    with anamnesis.TensorWriter(path, SHAPES) as out:
        assert sorted(out.order) == sorted(ARRAYS)
        for name in out.order:
            out.write(name, ARRAYS[name])
        assert not path.exists()
    assert out.files == [str(path)]
    if ending == "npz":
        with np.load(path) as read:
            found = dict(read)
    elif ending == "gguf":
        reader = pytest.importorskip("gguf").GGUFReader(path)
        found = {tensor.name: np.asarray(tensor.data).reshape(ARRAYS[tensor.name].shape) for tensor in reader.tensors}
    else:
        found = pytest.importorskip("safetensors.numpy").load_file(path)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array), name


def test_pieces_and_tensors_of_pytorch_are_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "out.safetensors"
    whole = torch.randn(64, 32).to(torch.bfloat16)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {"t": ("BF16", (32, 64)), "pieces": ("U8", (3_000_000,)), "empty": ("F32", (0, 3))}
    pieces = bytes(range(250)) * 12_000
    with anamnesis.TensorWriter(path, shapes, metadata={"format": "pt"}) as out:
        # strided
        out.write("t", whole.T)
        out.write("empty", torch.empty(0, 3))
        for start in range(0, len(pieces), 700_000):
            out.write("pieces", memoryview(pieces)[start : start + 700_000])
    from safetensors.torch import load_file

    found = load_file(path)
    assert torch.equal(found["t"], whole.T) and bytes(found["pieces"].numpy()) == pieces and found["empty"].shape == (0, 3)


def test_what_does_not_fit_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out.safetensors"

    def begun() -> Any:
        return anamnesis.TensorWriter(path, {"w": ("F32", (2, 2))})

    for wrong, text in [
        (np.zeros((2, 2)), "float64"),
        (np.zeros((4,), np.float32), "shape"),
        (np.zeros((2, 2), ">f4"), ">f4"),
        (b"12345678123456781", "16 bytes are missing"),
    ]:
        with pytest.raises(ValueError, match=text), begun() as out:
            out.write("w", wrong)
    with pytest.raises(KeyError), begun() as out:
        out.write("v", b"")
    with pytest.raises(ValueError, match="8 of 16 bytes"), begun() as out:
        out.write("w", b"12345678")
    out = begun()
    out.write("w", b"1234567812345678")
    out.close()
    with pytest.raises(ValueError, match="closed"):
        out.finish()
    for tensors, error in [({"w": ("X9", (1,))}, ValueError), ({"w": ("BF16", (1 << 62, 4))}, ValueError)]:
        with pytest.raises(error):
            anamnesis.TensorWriter(path, tensors)
    assert not list(tmp_path.iterdir())


def test_shards_of_a_program_have_an_index(tmp_path: Path) -> None:
    shapes = {f"t{i}": ("U8", (100,)) for i in range(9)}
    with anamnesis.TensorWriter(tmp_path / "model", shapes, shard_size=250) as out:
        for i in range(9):
            out.write(f"t{i}", bytes([i]) * 100)
    assert len(out.files) == 5
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == 9
    assert contents(tmp_path / "model")["t7"] == ("U8", (100,), bytes([7]) * 100)


def test_keys_have_types_of_a_gguf(tmp_path: Path) -> None:
    keys = {"x.size:u8": 7, "x.sizes:[u32]": [1, 2], "x.on:bool": True, "x.rate:f32": 0.5, "x.name": "n", "x:text": None}
    expected = {"x.size": 7, "x.sizes": [1, 2], "x.on": True, "x.rate": 0.5, "x.name": "n"}
    del keys["x:text"]
    converted, written = tmp_path / "c.gguf", tmp_path / "w.gguf"
    anamnesis.convert(SHARDED, converted, metadata=keys)
    with anamnesis.TensorWriter(written, {"w": ("F32", (1,))}, metadata=keys) as out:
        out.write("w", b"\0" * 4)
    for path in (converted, written):
        found = anamnesis.open(path).metadata
        assert {key: found[key] if key != "x.sizes" else list(found[key]) for key in expected} == expected
    # a key that exists keeps its type
    again = tmp_path / "again.gguf"
    anamnesis.convert(converted, again, metadata={"x.size": 8, "x.name": None})
    assert anamnesis.open(again).metadata["x.size"] == 8 and "x.name" not in anamnesis.open(again).metadata
    for wrong in ({"new": 5}, {"new": object()}):
        with pytest.raises(TypeError, match="metadata: 'new'"):
            anamnesis.convert(SHARDED, tmp_path / "n.gguf", metadata=wrong)
        with pytest.raises(TypeError, match="metadata: 'new'"):
            anamnesis.TensorWriter(tmp_path / "n.gguf", {}, metadata=wrong)
    with pytest.raises(ValueError, match="texts"):
        anamnesis.convert(SHARDED, tmp_path / "n.safetensors", metadata={"x.size:u8": 7})
    with pytest.raises(ValueError, match="texts"):
        anamnesis.TensorWriter(tmp_path / "n.safetensors", {"w": ("F32", (0,))}, metadata={"x.size:u8": 7})
    with pytest.raises(TypeError, match="rename"):
        anamnesis.edit(converted, rename=["a=b"])  # type: ignore[arg-type]


def test_floats_that_numpy_does_not_have_are_written_as_items(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    tensors = {"a": ("BF16", (2, 3)), "b": ("F8_E4M3", (2,))}
    with pytest.raises(anamnesis.UnsupportedError, match=r"void=True") as caught:
        anamnesis.TensorWriter(tmp_path / "refused.npz", tensors)
    # the keyword is one of the function
    assert caught.value.remedy is not None and "void=True" in caught.value.remedy and "convert(" in caught.value.remedy
    with anamnesis.TensorWriter(tmp_path / "made.npz", tensors, void=True) as out:
        out.write("a", values)
        out.write("b", np.ones(2, ml_dtypes.float8_e4m3fn))
    stored = np.load(tmp_path / "made.npz")
    assert stored["a"].dtype == "V2" and stored["a"].tobytes() == values.tobytes() and stored["b"].dtype == "V1"
    found = anamnesis.open(tmp_path / "made.npz", void_as=["BF16", "F8_E4M3"]).load("np")
    assert found["a"].dtype == ml_dtypes.bfloat16 and found["a"].tobytes() == values.tobytes()
    assert not (tmp_path / "refused.npz").exists()


def test_a_gguf_of_a_file_type(tmp_path: Path) -> None:
    out = tmp_path / "small.gguf"
    assert anamnesis.convert(GGUF, out, type="q4_k_m", requantise=True) == [str(out)]
    assert anamnesis.open(out).metadata["general.file_type"] == 15
    with pytest.raises(OSError, match="exists"):
        anamnesis.convert(GGUF, out, type="q4_k_m", requantise=True)
    anamnesis.convert(GGUF, out, type="Q8_0", tensor_types={"attn_k": "q4_0"}, requantise=True, overwrite=True)
    kinds = {name: tensor.dtype for name, tensor in anamnesis.open(out).items()}
    assert kinds["blk.0.attn_k.weight"] == "Q4_0", kinds
    with pytest.raises(anamnesis.errors.UnsupportedError, match="quantised already"):
        anamnesis.convert(GGUF, tmp_path / "again.gguf", type="q4_0")
    with pytest.raises(ValueError, match="dtype does not go with type"):
        anamnesis.convert(GGUF, out, type="q4_0", dtype="float16")
    with pytest.raises(ValueError, match="pure needs type"):
        anamnesis.convert(GGUF, out, pure=True)
    with pytest.raises(ValueError, match="q4_9"):
        anamnesis.convert(GGUF, out, type="q4_9")
    assert not (tmp_path / "again.gguf").exists()
