"""Conversions over several nodes: processes of one machine that Ray takes for machines. Needs ray, which is not installed for
the other tests."""

from __future__ import annotations

import inspect
import json
import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="ray is not installed")

import anamnesis.ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARD = 8 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes of one processor each, and a head without one."""
    memory = 80 << 20
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False})
    for _ in range(4):
        cluster.add_node(num_cpus=1, object_store_memory=memory)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def source(directory: Path, seed: int = 1, layers: int = 24) -> Path:
    """FP8 weights of one 4 MiB output each."""
    directory.mkdir()
    random = np.random.default_rng(seed)
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "seed": str(seed)}}
    data = []
    end = 0
    for layer in range(layers):
        name = f"model.layers.{layer}.mlp.up_proj.weight"
        codes = random.integers(0, 0x60, (1024, 2048), dtype=np.uint8)
        scales = random.random((8, 16), dtype=np.float32) + np.float32(0.01)
        for key, dtype, array in [(name, "F8_E4M3", codes), (f"{name}_scale_inv", "F32", scales)]:
            header[key] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
            end += array.nbytes
            data.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    config = {"model_type": "x", "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text("{}")
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_files_are_those_of_one_machine_and_are_made_once(cluster: Cluster, tmp_path: Path) -> None:
    src = source(tmp_path / "in")
    anamnesis.remember_to(src, tmp_path / "one", shard_size=SHARD)
    reported: list[tuple[int, int]] = []
    files = anamnesis.ray.remember_to(src, tmp_path / "many", shard_size=SHARD, progress=lambda *bytes: reported.append(bytes))
    expected = contents(tmp_path / "one")
    assert contents(tmp_path / "many") == expected
    assert len(files) == 12 and all(os.path.exists(file) for file in files)
    total = 24 * 1024 * 2048 * 2
    assert reported[0] == (0, total) and reported[-1] == (total, total) and reported == sorted(reported)
    # the second run makes nothing
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "many").iterdir()}
    reported.clear()
    anamnesis.ray.remember_to(src, tmp_path / "many", shard_size=SHARD, progress=lambda *bytes: reported.append(bytes))
    assert reported == [(total, total)]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "many").iterdir()} == times


def test_stale_files_are_made_again_and_missing_ones_refused(cluster: Cluster, tmp_path: Path) -> None:
    src, other = source(tmp_path / "in", layers=6), source(tmp_path / "other", seed=2, layers=6)
    target = tmp_path / "out"
    # a file of an unfinished run of another source, with the same names and sizes
    directory = anamnesis.open(other)._core.output_directory(str(target), SHARD)
    directory.prepare()
    name, _, _, text = directory.files()[1]
    assert anamnesis.open(other)._core.make_file(str(target), text)
    with pytest.raises(anamnesis.MissingPartError, match="model-00001-of-00003.safetensors` is missing"):
        directory.complete()
    assert [path.name for path in target.iterdir()] == [name]
    stale = (target / name).read_bytes()
    anamnesis.ray.remember_to(src, target, shard_size=SHARD)
    anamnesis.remember_to(src, tmp_path / "one", shard_size=SHARD)
    assert contents(target) == contents(tmp_path / "one") and (target / name).read_bytes() != stale
    # a checkpoint of another plan is replaced on request only
    with pytest.raises(FileExistsError):
        anamnesis.ray.remember_to(other, target, shard_size=SHARD)
    anamnesis.ray.remember_to(other, target, shard_size=SHARD, overwrite=True)
    assert (target / name).read_bytes() == stale


def test_progress_is_reported_within_files(cluster: Cluster, tmp_path: Path) -> None:
    src = source(tmp_path / "in", layers=96)
    reported: list[int] = []
    # one file of 400 MB
    anamnesis.ray.remember_to(src, tmp_path / "out", dtype="float32", cast=True, progress=lambda done, _: reported.append(done))
    total = 96 * 1024 * 2048 * 4
    assert reported[0] == 0 and reported[-1] == total and reported == sorted(reported)
    actor = ray.remote(anamnesis.ray._BytesMade).remote()
    before, anamnesis.ray.SECONDS = anamnesis.ray.SECONDS, 0
    try:
        made = anamnesis.open(src)._core
        directory = made.output_directory(str(tmp_path / "again"), 1 << 40, dtype="float32")
        directory.prepare()
        shared = {"dtype": "float32", "overwrite": False}
        anamnesis.ray._make(str(src), {}, str(tmp_path / "again"), directory.files()[0][3], 1, shared, actor, 7)
    finally:
        anamnesis.ray.SECONDS = before
    assert ray.get(actor.of.remote([7])) == total and ray.get(actor.of.remote([8])) == 0
    assert anamnesis.ray._bytes_of(actor, [7]) == total
    ray.kill(actor)
    deadline = time.monotonic() + 30
    # it ends soon after
    while anamnesis.ray._bytes_of(actor, [7]):
        assert time.monotonic() < deadline


def running(cluster: Cluster) -> list[int]:
    """The processes of this cluster that make a file."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.worker_nodes}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            title = (process / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if parent in raylets and title.startswith(b"ray::remember model-"):
            found.append(int(process.name))
    return found


def test_a_lost_worker_and_a_lost_node_cost_no_file(cluster: Cluster, tmp_path: Path) -> None:
    src = source(tmp_path / "in", layers=48)
    anamnesis.remember_to(src, tmp_path / "one", shard_size=SHARD)
    lost: list[str] = []

    def lose(done: int, total: int) -> None:
        if not lost and done >= total // 6:
            workers = running(cluster)
            if workers:
                os.kill(workers[0], signal.SIGKILL)
                lost.append("worker")
        elif len(lost) == 1 and done >= total // 3:
            cluster.remove_node(sorted(cluster.worker_nodes, key=id)[0], allow_graceful=False)
            lost.append("node")

    try:
        anamnesis.ray.remember_to(src, tmp_path / "many", shard_size=SHARD, max_retries=5, progress=lose)
    finally:
        if "node" in lost:
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    assert "node" in lost and "worker" in lost, lost
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_an_interrupt_leaves_complete_files_only(cluster: Cluster, tmp_path: Path) -> None:
    src, target = source(tmp_path / "in"), tmp_path / "out"

    def interrupt(done: int, total: int) -> None:
        if done >= total // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        anamnesis.ray.remember_to(src, target, shard_size=SHARD, progress=interrupt)
    names = {path.name for path in target.iterdir()}
    assert names and all(name.startswith("model-") and name.endswith("-of-00012.safetensors") for name in names), names
    anamnesis.ray.remember_to(src, target, shard_size=SHARD)
    anamnesis.remember_to(src, tmp_path / "one", shard_size=SHARD)
    assert contents(target) == contents(tmp_path / "one")


def test_a_malformed_source_is_refused_without_repetition(cluster: Cluster, tmp_path: Path) -> None:
    src = source(tmp_path / "in", layers=2)
    (src / "model.safetensors").write_bytes((src / "model.safetensors").read_bytes()[:-5])
    with pytest.raises(anamnesis.MalformedError):
        anamnesis.ray.remember_to(src, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_are_made_where_their_caller_says(cluster: Cluster, tmp_path: Path) -> None:
    src = source(tmp_path / "in", layers=4)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    offered: list[anamnesis.ray.File] = []

    def locality(file: anamnesis.ray.File) -> str | None:
        offered.append(file)
        return nodes[0] if len(offered) == 1 else None

    anamnesis.ray.remember_to(src, tmp_path / "out", shard_size=SHARD, locality=locality)
    assert [file.name for file in offered] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert offered[0].nbytes == SHARD and offered[0].outputs[0] == "model.layers.0.mlp.up_proj.weight"


def test_checkpoints_are_listed_side_by_side(cluster: Cluster, tmp_path: Path) -> None:
    source(tmp_path / "fp8", layers=1)
    (tmp_path / "model.gguf").write_bytes((FIXTURES / "model" / "scribe-Q8_0.gguf").read_bytes())
    (tmp_path / "broken.safetensors").write_bytes(b"\0" * 20)
    found = {os.path.basename(row["path"]): row for row in anamnesis.ray.inspect(tmp_path)}
    assert found.keys() == {"fp8", "model.gguf", "broken.safetensors"}
    assert (found["fp8"]["format"], found["fp8"]["tensors"], found["fp8"]["quantisation"]) == ("safetensors", 2, ["fp8"])
    assert found["model.gguf"]["quantisation"] == ["ggml"] and found["model.gguf"]["nbytes"] > 0
    assert found["broken.safetensors"]["error"]


@pytest.mark.skipif("tp" not in inspect.signature(anamnesis.Checkpoint.load).parameters, reason="Checkpoint.load has no tp=")
def test_an_actor_loads_its_share(cluster: Cluster, tmp_path: Path) -> None:
    src = source(tmp_path / "in", layers=1)

    @ray.remote(num_cpus=1)
    class Worker:
        def load(self, rank: int) -> dict[str, tuple[int, ...]]:
            loaded = anamnesis.ray.load(src, rank, 2, "np")
            return {name: array.shape for name, array in loaded.items()}

    workers = [Worker.remote() for _ in range(2)]
    shares = ray.get([worker.load.remote(rank) for rank, worker in enumerate(workers)])
    for worker in workers:
        ray.kill(worker)
    name = "model.layers.0.mlp.up_proj.weight"
    assert [share[name] for share in shares] == [(512, 2048)] * 2
