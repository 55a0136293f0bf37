"""One conversion by several processes, without Ray: the directory is the one of one process."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import anamnesis
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"
SHARD = 60_000


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def worker(out: str, rank: int, world: int) -> None:
    parts = anamnesis.parts(GGUF, out, shard_size=SHARD)
    for name in parts.names[rank::world]:
        parts.make(name)


def test_processes_make_what_one_makes(tmp_path: Path) -> None:
    anamnesis.remember_to(GGUF, tmp_path / "one", shard_size=SHARD)
    context = multiprocessing.get_context("spawn")
    out = tmp_path / "many"
    processes = [context.Process(target=worker, args=(str(out), rank, 3)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    files = anamnesis.parts(GGUF, out, shard_size=SHARD).complete()
    assert len(files) > 2 and contents(out) == contents(tmp_path / "one")


def test_a_pickled_object_makes_files(tmp_path: Path) -> None:
    parts = anamnesis.parts(GGUF, tmp_path / "out", shard_size=SHARD, dtype="float32", exclude="model.norm.*")
    with pytest.raises(anamnesis.MissingPartError):
        parts.complete()
    sent = pickle.loads(pickle.dumps(parts))
    assert sent.names == parts.names and sum(parts.nbytes.values()) > 0
    assert all(sent.make(name) for name in parts.names)
    assert not parts.make(parts.names[0])
    with pytest.raises(KeyError):
        parts.make("other")
    assert parts.complete() == sent.complete()


def test_files_of_two_conversions_are_no_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "out"
    anamnesis.remember_to(GGUF, out, shard_size=SHARD, dtype="float32")
    parts = anamnesis.parts(GGUF, out, shard_size=SHARD, dtype="float16", overwrite=True)
    parts.make(parts.names[0])
    with pytest.raises((anamnesis.AnamnesisError, OSError)):
        anamnesis.load(out, "np")
    # two jobs that run at once
    first, second = tmp_path / "first", tmp_path / "second"
    one = anamnesis.parts(GGUF, first, shard_size=SHARD, dtype="float16")
    two = anamnesis.parts(GGUF, second, shard_size=SHARD, dtype="bfloat16")
    assert one.names == two.names
    for number, name in enumerate(one.names):
        (one if number else two).make(name)
        if not number:
            (second / name).rename(first / name)
    with pytest.raises(anamnesis.MalformedError, match="2 conversions"):
        anamnesis.open(first)


def test_what_has_no_parts_is_refused(tmp_path: Path) -> None:
    for options in ({"shard_size": 0}, {"out": tmp_path / "a.safetensors"}):
        with pytest.raises(ValueError):
            anamnesis.parts(GGUF, **{"out": tmp_path / "out", **options})
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_parts(tmp_path: Path) -> None:
    anamnesis.remember_to(GGUF, tmp_path / "one", shard_size=SHARD)
    out = f"{tmp_path}/many/"
    command = [sys.executable, "-m", "anamnesis", "remember", str(GGUF), "-o", out, "--shard-size", str(SHARD), "--part"]
    runs = [subprocess.Popen([*command, f"{part}/3"], stdout=subprocess.PIPE, text=True) for part in (1, 2, 3)]
    texts = [run.communicate(timeout=120)[0] for run in runs]
    assert all(run.returncode == 0 for run in runs) and any("complete" in text for text in texts), texts
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
