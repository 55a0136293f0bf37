"""``anamnesis.torch.load`` has the parameters of ``torch.load``."""

from __future__ import annotations

import inspect
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anamnesis
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import anamnesis.torch  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
TIED = FIXTURES / "pth" / "tied.pth"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.pt"
    weight = torch.arange(12.0).view(3, 4)
    torch.save({"weight": weight, "view": weight[1:], "other": torch.ones(2, dtype=torch.bfloat16)}, path)
    return path


def _bytes_of(tensor: Any) -> Any:
    # not a number is not equal to itself
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(
        ours[name].device == theirs[name].device and (ours[name].is_meta or torch.equal(_bytes_of(ours[name]), _bytes_of(theirs[name]))) for name in ours
    )


def test_parameters_have_the_names_and_places_of_those_of_torch() -> None:
    ours, theirs = inspect.signature(anamnesis.torch.load).parameters, inspect.signature(torch.load).parameters
    for name in ("f", "map_location", "pickle_module", "weights_only", "mmap"):
        assert ours[name].kind == theirs[name].kind, name
    assert list(ours)[:3] == list(theirs)[:3]
    assert same(anamnesis.torch.load(f=TIED), torch.load(f=TIED))


def test_files_and_objects_are_read(state: Path) -> None:
    expected = torch.load(state)
    assert same(anamnesis.torch.load(io.BytesIO(state.read_bytes())), expected)
    with open(state, "rb") as file:
        assert same(anamnesis.torch.load(file), expected)
    with open(state, "rb", buffering=0) as file:
        assert same(anamnesis.torch.load(file), expected)
    # from where it stands
    with open(state, "rb") as file:
        behind = io.BytesIO(b"before" + file.read())
    behind.seek(6)
    assert same(anamnesis.torch.load(behind), expected)

    class Reader:
        """No more than a method."""

        def __init__(self, data: bytes) -> None:
            self.data, self.name = data, str(TIED)

        def read(self, n: int = -1) -> bytes:
            return self.data

    assert same(anamnesis.torch.load(Reader(state.read_bytes())), expected)


def test_a_file_is_mapped_by_its_path(state: Path, tmp_path: Path) -> None:
    with open(state, "rb") as file:
        loaded = anamnesis.torch.load(file, mmap=True)
    assert torch.equal(loaded["weight"], torch.load(state)["weight"])
    with pytest.raises(ValueError, match="mmap"):
        anamnesis.torch.load(io.BytesIO(state.read_bytes()), mmap=True)
    # another file has the name by now: the open one is meant
    with open(state, "rb") as file:
        os.replace(_copy(tmp_path), state)
        assert same(anamnesis.torch.load(file), loaded)


def _copy(folder: Path) -> Path:
    copy = folder / "copy.pth"
    copy.write_bytes(TIED.read_bytes())
    return copy


def test_a_text_file_is_refused(state: Path) -> None:
    with open(state, encoding="latin-1") as file, pytest.raises(TypeError, match="binary"):
        anamnesis.torch.load(file)


def test_code_is_refused(state: Path) -> None:
    for options in ({"weights_only": False}, {"pickle_module": pickle}):
        with pytest.raises(ValueError, match="code"):
            anamnesis.torch.load(state, **options)
    assert same(anamnesis.torch.load(state, weights_only=True), torch.load(state))


def without_data(storage: Any) -> Any:
    return torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta").untyped_storage()


LOCATIONS: list[Any] = [
    None,
    "cpu",
    "meta",
    torch.device("cpu"),
    torch.device("meta"),
    {"cpu": "meta"},
    {"cuda:0": "meta"},
    lambda storage, place: storage,
    lambda storage, place: None,
    lambda storage, place: without_data(storage) if place == "cpu" else None,
]


@pytest.mark.parametrize("location", LOCATIONS, ids=range(len(LOCATIONS)))
def test_tensors_are_where_torch_puts_them(state: Path, location: Any) -> None:
    ours, theirs = anamnesis.torch.load(state, map_location=location), torch.load(state, map_location=location)
    assert same(ours, theirs)
    if not ours["weight"].is_meta:
        ours["weight"][1, 0] = 77
        assert ours["view"][0, 0] == 77, "tied"


def test_a_function_sees_each_storage_and_the_place_that_it_was_saved_from(state: Path, tmp_path: Path) -> None:
    def calls(load: Callable[..., Any], path: Path) -> list[tuple[str, str, int]]:
        seen: list[tuple[str, str, int]] = []

        def function(storage: Any, place: str) -> Any:
            seen.append((type(storage).__name__, place, storage.nbytes()))
            return storage

        load(path, map_location=function)
        return sorted(seen)

    assert calls(anamnesis.torch.load, state) == calls(torch.load, state)
    # a place that this machine does not have
    other = tmp_path / "other.pt"
    with open(state, "rb") as file:
        data = file.read()
    other.write_bytes(_moved_to(data, tmp_path))
    found = calls(anamnesis.torch.load, other)
    assert {place for _, place, _ in found} == {"cuda:1"} and found == calls(torch.load, other)
    for location in ({"cuda:1": "cpu"}, {"cuda:1": "meta"}, "cpu"):
        assert same(anamnesis.torch.load(other, map_location=location), torch.load(other, map_location=location))
    # without one, tensors of any place are on the CPU
    assert same(anamnesis.torch.load(other), torch.load(state))


def _moved_to(data: bytes, folder: Path) -> bytes:
    """The file with another place: its archive is written again, since the lengths change."""
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith("data.pkl"):
                # `X` is the opcode of a text with its length in four bytes
                content = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:1")
                assert b"cuda:1" in content
            new.writestr(info.filename, content)
    return made.getvalue()


def test_other_values_are_refused(state: Path) -> None:
    with pytest.raises(TypeError, match="map_location"):
        anamnesis.torch.load(state, map_location=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="storage"):
        anamnesis.torch.load(state, map_location=lambda storage, place: "cpu")


def test_other_formats_have_them_too(tmp_path: Path) -> None:
    path = FIXTURES / "safetensors" / "sharded"
    for location in ("meta", {"cpu": "meta"}, lambda storage, place: without_data(storage)):
        assert all(tensor.is_meta for tensor in anamnesis.torch.load(path, map_location=location).values())
    expected = anamnesis.torch.load(path)
    kept = anamnesis.torch.load(path, map_location=lambda storage, place: None)
    assert same(kept, expected)
