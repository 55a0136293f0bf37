"""Sources that can be opened: file objects and objects with a buffer; other objects are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import mmap
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
FILES = [
    FIXTURES / "safetensors" / "all_dtypes.safetensors",
    FIXTURES / "model" / "scribe-Q8_0.gguf",
    FIXTURES / "pth" / "tied.pth",
]


def values(source: object) -> dict[str, bytes]:
    checkpoint = anamnesis.open(source)  # type: ignore[arg-type]
    return {name: np.asarray(array).tobytes() for name, array in checkpoint.load("np").items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file_objects_and_buffers_are_read_as_paths(path: Path, tmp_path: Path) -> None:
    expected, contents = values(path), path.read_bytes()
    assert values(contents) == values(bytearray(contents)) == values(memoryview(contents)) == expected
    assert values(np.frombuffer(contents, np.uint8)) == expected
    assert values(io.BytesIO(contents)) == expected
    with path.open("rb") as file:
        file.seek(7)
        assert values(file) == expected
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert values(mapped) == expected
    for package in (gzip, bz2):
        packed = tmp_path / f"{package.__name__}"
        with package.open(packed, "wb") as file:
            file.write(contents)
        with package.open(packed, "rb") as file:
            assert values(file) == expected


def test_files_of_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/m.safetensors", FILES[0].read_bytes())
    with memory.open("/m.safetensors", "rb") as file:
        assert values(file) == values(FILES[0])
    assert values(fsspec.open("memory://m.safetensors")) == values(FILES[0])


def test_threads_may_share_a_file_object() -> None:
    checkpoint = anamnesis.open(io.BytesIO(FILES[1].read_bytes()))
    expected = values(FILES[1])
    failed: list[object] = []

    def read() -> None:
        for name, contents in expected.items():
            if np.asarray(checkpoint[name].numpy()).tobytes() != contents:
                failed.append(name)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and not any(thread.is_alive() for thread in threads)


def test_a_stream_that_is_left_early_ends(tmp_path: Path) -> None:
    # in a process of its own: one that waits for itself cannot be ended by the test
    path = tmp_path / "big.npz"
    np.savez(path, **{f"a{i}": np.zeros(1 << 20, np.uint8) for i in range(24)})
    program = (
        "import anamnesis, io, sys\n"
        "stream = anamnesis.open(io.BytesIO(open(sys.argv[1], 'rb').read())).stream('np', read_ahead=1 << 20)\n"
        "for name, array in stream: break\n"
        "del stream\n"
        "kept = anamnesis.open(open(sys.argv[1], 'rb')).stream('np', read_ahead=1 << 20)\n"
        "next(kept)\n"
        "print('done')\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "done\n"


def test_an_exception_of_a_file_object_is_raised() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        anamnesis.open(Failing(FILES[0].read_bytes()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_exception_of_a_file_object_keeps_its_class_while_tensors_are_read(path: Path) -> None:
    class Mine(Exception):
        pass

    class Failing(io.BytesIO):
        fails = False

        def read(self, size: int | None = -1) -> bytes:
            if self.fails:
                raise Mine("of my own")
            return super().read(size)

    file = Failing(path.read_bytes())
    checkpoint = anamnesis.open(file)
    name = next(name for name in checkpoint if checkpoint[name].nbytes)
    file.fails = True
    reads = {
        "load": lambda: checkpoint.load("np"),
        "stream": lambda: list(checkpoint.stream("np")),
        "remember": lambda: checkpoint.remember("np"),
        "dequantised": lambda: list(checkpoint.stream("np", dequantise=True)),
        "numpy": lambda: checkpoint[name].numpy(),
        "raw": lambda: checkpoint[name].raw(),
    }
    for what, read in reads.items():
        with pytest.raises(Mine, match="of my own") as caught:
            read()
        assert type(caught.value) is Mine, what
    # and the file is read again when it works again
    file.fails = False
    assert checkpoint.load("np").keys() == checkpoint.keys()


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="file object"):
        anamnesis.open(3)  # type: ignore[arg-type]
    with FILES[0].open() as text, pytest.raises((TypeError, UnicodeDecodeError)):
        anamnesis.open(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fsdecode"):
        anamnesis.open(os.fsencode(FILES[0]))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(anamnesis.open(io.BytesIO(FILES[0].read_bytes())))


def test_a_closed_checkpoint_says_so() -> None:
    with anamnesis.open(FILES[0]) as checkpoint:
        name = next(iter(checkpoint))
        kept = checkpoint.load("np", names=[name])[name]
        before = np.asarray(kept).tobytes()
    assert np.asarray(kept).tobytes() == before
    assert "closed" in repr(checkpoint)
    for use in (lambda: checkpoint.load("np"), lambda: len(checkpoint), lambda: checkpoint[name], lambda: checkpoint.format, lambda: name in checkpoint):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_storage_options_are_variables(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="aws_access_key_id"):
        anamnesis.open(FILES[0], storage_options={"key": "x"})
    assert anamnesis.open(FILES[0], storage_options={"aws_access_key_id": "x"}).format == "safetensors"
