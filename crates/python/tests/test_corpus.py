"""Every tensor and every reference output of the shared corpus, where it lies beside the project, and of the fixtures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest

PROJECT = Path(__file__).resolve().parents[3]
CORPUS = PROJECT.parent / "shared" / "corpus"
FIXTURES = PROJECT / "fixtures"


def entries(folder: str) -> Iterator[Any]:
    manifest = CORPUS / folder / "manifest.json"
    if not manifest.exists():
        yield pytest.param(None, None, marks=pytest.mark.skip(reason="no corpus beside the project"), id=folder)
        return
    for entry in json.loads(manifest.read_text())["entries"]:
        # files that readers may refuse are the library's own tests
        if entry.get("expect") == "ok" and entry.get("path") and entry.get("tensors"):
            yield pytest.param(CORPUS / folder, entry, id=f"{folder}/{entry['path']}")


MODULES = {"np": "numpy", "pt": "torch", "jax": "jax", "mlx": "mlx.core", "dlpack": "torch"}


def values(framework: str, array: Any) -> bytes:
    """The bytes of an array of this framework."""
    if framework in ("np", "jax"):
        return np.ascontiguousarray(np.asarray(array)).tobytes()
    if framework == "mlx":
        import mlx.core as mx

        # MLX has no view of what has no elements
        return np.array(mx.reshape(array, (-1,)).view(mx.uint8)).tobytes() if array.size else b""
    import torch

    tensor = torch.from_dlpack(array) if framework == "dlpack" else array
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("path", sorted((FIXTURES / "safetensors").rglob("*.safetensors")), ids=lambda p: p.name)
@pytest.mark.parametrize("framework", ["jax", "mlx", "dlpack"])
def test_frameworks_have_the_bytes_of_the_file(path: Path, framework: str) -> None:
    pytest.importorskip(MODULES[framework])
    try:
        checkpoint = anamnesis.open(path)
    except anamnesis.AnamnesisError:
        pytest.skip("a fixture of what is refused")
    for name, tensor in checkpoint.items():
        if any(size >= 1 << 31 for size in tensor.shape):
            continue  # MLX counts elements of an axis in 32 bits, and others in 63
        stored = bytes(tensor.raw())
        loaded = tensor.to(framework)
        assert values(framework, loaded) == stored, name
        assert tuple(loaded.shape)[:-1] == tensor.shape[:-1] or 0 in tensor.shape, name


@pytest.mark.parametrize("framework", list(MODULES))
@pytest.mark.parametrize(("folder", "entry"), [*entries("public"), *entries("real")])
def test_stored_tensors_are_those_of_the_manifest(folder: Path, entry: dict[str, Any], framework: str) -> None:
    pytest.importorskip(MODULES[framework])
    if any(size >= 1 << 60 for tensor in entry["tensors"] for size in tensor.get("shape", ())):
        pytest.skip("no framework has a tensor of this shape")
    path = folder / entry["path"]
    try:
        checkpoint = anamnesis.open(path)
    except anamnesis.RefusedGlobalError:
        checkpoint = anamnesis.open(path, opaque=True)
    found = checkpoint.load(framework)
    compared = 0
    for tensor in entry["tensors"]:
        name = tensor["name"] if tensor["name"] in found else next(iter(found), None) if len(found) == 1 else None
        # arrays of numpy that an archive stores in another byte order have other bytes in the file
        if name is None or not tensor.get("sha256"):
            continue
        assert hashlib.sha256(values(framework, found[name])).hexdigest() == tensor["sha256"], tensor["name"]
        compared += 1
    assert compared or not checkpoint, "no tensor of the manifest was found"


def same(found: Any, expected: Any) -> bool:
    """Equal bits, but for the bits of NaN, which the references do not fix."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    nan = np.isnan(expected.astype(np.float32))
    bits = f"u{expected.dtype.itemsize}"
    return bool((np.isnan(found.astype(np.float32)) == nan).all()) and bool((found.view(bits) == expected.view(bits))[~nan].all())


# a stored zero of the maximum code, which readers take in three ways; tests/it/schemes has the way of this library
READINGS = "4bit_v1_zero_overflow"
# rotations and scales of scales, whose sums and products have another order: `tests/it/schemes/field.rs` has the same
NEARLY = {"comfy-int8-convrot64": 1e-5, "comfy-int8-convrot256-params": 1e-5, "modelopt-compressed-nvfp4": 1e-6}

DTYPES = {"f32": "float32", "bf16": "bfloat16"}


def oracle_of(source: Path, oracle: Path, name: str) -> Any:
    # `native` outputs have the references' own dtypes
    dtype = oracle.name.removesuffix(".safetensors").rpartition(".")[2]
    return pytest.param(source, oracle, DTYPES[dtype], id=name) if dtype in DTYPES else None


def oracles() -> list[Any]:
    found = []
    for oracle in sorted(FIXTURES.rglob("*oracle.*.safetensors")):
        stem, _, _ = oracle.name.partition("oracle.")
        sources = [one for one in oracle.parent.glob(f"{stem}*") if "oracle" not in one.name and one.suffix != ".json"]
        if len(sources) == 1 and READINGS not in str(oracle):
            found.append(oracle_of(sources[0], oracle, str(oracle.relative_to(FIXTURES))))
    for parameters in entries("public"):
        folder, entry = parameters.values
        for oracle in (entry or {}).get("oracle") or []:
            if oracle["path"].endswith(".safetensors"):
                found.append(oracle_of(folder / entry["path"], folder / oracle["path"], f"public/{oracle['path']}"))
    return [one for one in found if one]


@pytest.mark.parametrize(("source", "oracle", "dtype"), oracles())
def test_weights_are_those_of_the_oracles(source: Path, oracle: Path, dtype: str) -> None:
    expected = anamnesis.load(oracle, "np")
    made = anamnesis.open(source).remember("np", dtype=dtype)
    compared = 0
    for name, array in expected.items():
        # a reference may have further outputs, such as a transposed copy
        if name in made and made[name].dtype == array.dtype:
            nearly = NEARLY.get(source.parent.name)
            if nearly:
                assert np.abs(made[name] - array).max() <= nearly * np.abs(array).max(), name
            else:
                assert same(made[name], array), name
            compared += 1
    assert compared, f"none of {list(expected)} in {list(made)}"
