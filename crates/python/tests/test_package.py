"""The package against the real readers, over the project's fixtures."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SAFETENSORS = sorted((FIXTURES / "safetensors").glob("*.safetensors"))
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"


def sha(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def large_file(path: Path, tensors: int, nbytes: int) -> None:
    header = {
        f"t{i:03}": {"dtype": "U8", "shape": [nbytes], "data_offsets": [i * nbytes, (i + 1) * nbytes]} for i in range(tensors)
    }
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for i in range(tensors):
            f.write(bytes([i % 251]) * nbytes)


@pytest.mark.parametrize("path", SAFETENSORS, ids=lambda p: p.name)
@pytest.mark.parametrize("borrow", [False, True, "auto"])
def test_safetensors_are_those_of_the_safetensors_package(path: Path, borrow: bool | str) -> None:
    safetensors = pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    try:
        with safetensors.safe_open(path, "pt") as file:
            expected = {name: file.get_tensor(name) for name in file.keys()}
    except Exception as e:  # a dtype that this version lacks
        pytest.skip(f"safetensors refuses it: {e}")
    found = anamnesis.load(path, "pt", borrow=borrow)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == expected[name].dtype, name
        assert tensor.shape == expected[name].shape, name
        assert torch.equal(tensor.view(torch.uint8), expected[name].view(torch.uint8)) if tensor.ndim else True
        assert tensor.untyped_storage().nbytes() >= tensor.nbytes


@pytest.mark.parametrize("path", sorted((FIXTURES / "npy").glob("*.npy")), ids=lambda p: p.name)
def test_arrays_are_those_of_numpy(path: Path) -> None:
    try:
        expected = np.load(path)
    except Exception as e:
        pytest.skip(f"numpy refuses it: {e}")
    try:
        checkpoint = anamnesis.open(path)
    except anamnesis.AnamnesisError as e:
        pytest.skip(f"refused: {e}")
    (tensor,) = checkpoint.values()
    array = tensor.numpy()
    if array.dtype == np.uint8 and expected.dtype != np.uint8:
        pytest.skip(f"{tensor.dtype} is given as bytes")
    assert array.shape == expected.shape
    assert sha(array) == sha(expected.astype(expected.dtype.newbyteorder("<")))


@pytest.mark.parametrize("path", sorted((FIXTURES / "gguf" / "types").glob("*.gguf")), ids=lambda p: p.name)
def test_ggufs_are_dequantised_as_the_oracles(path: Path) -> None:
    oracles = {"float32": "f32", "bfloat16": "bf16"}
    compared = 0
    for dtype, ending in oracles.items():
        oracle = path.with_name(f"{path.stem}.oracle.{ending}.safetensors")
        if not oracle.exists():
            continue
        made = anamnesis.open(path).remember("np", dtype=dtype)
        for name, expected in anamnesis.load(oracle, "np").items():
            assert made[name].dtype == expected.dtype and sha(made[name]) == sha(expected), name
            compared += 1
    if not compared:
        pytest.skip("no oracle of its own")


def test_a_checkpoint_is_a_mapping_that_reads_nothing() -> None:
    checkpoint = anamnesis.open(GGUF)
    assert checkpoint.format == "gguf" and len(checkpoint) == len(list(checkpoint))
    tensor = checkpoint["blk.0.attn_q.weight"]
    assert (tensor.dtype, tensor.name) == ("Q8_0", "blk.0.attn_q.weight")
    assert "no such name" not in checkpoint
    with pytest.raises(KeyError):
        checkpoint["no such name"]
    assert checkpoint.metadata["general.architecture"] == "llama"
    tokens = checkpoint.metadata["tokenizer.ggml.tokens"]
    assert len(tokens) > 8 and all(isinstance(t, str) for t in tokens)
    assert anamnesis.inspect(GGUF)["totals"]["tensors"] == len(checkpoint)
    assert "<table>" in checkpoint._repr_html_()


def test_blocks_are_bytes_by_rows() -> None:
    tensor = anamnesis.open(GGUF)["blk.0.attn_q.weight"]
    blocks = tensor.numpy()
    assert blocks.dtype == np.uint8 and blocks.shape == (tensor.shape[0], tensor.shape[1] // 32 * 34)


def test_slices_are_those_of_the_whole() -> None:
    checkpoint = anamnesis.open(FIXTURES / "safetensors" / "sharded")
    tensor = checkpoint["lm_head.weight"]
    whole = tensor.numpy()
    for index in [slice(2, 5), slice(-3, None), slice(None, None, 2), 3, -1, (slice(1, 9), slice(2, 4)), (2, 3), ..., (..., 1)]:
        assert sha(tensor[index]) == sha(whole[index]), index
        assert tensor[index].shape == whole[index].shape, index
    with pytest.raises(IndexError):
        tensor[len(tensor)]


def test_a_stream_has_the_tensors_of_a_load() -> None:
    for path in [*SAFETENSORS, FIXTURES / "safetensors" / "sharded", GGUF]:
        try:
            checkpoint = anamnesis.open(path)
        except anamnesis.AnamnesisError:
            continue  # a fixture of what is refused
        if any(size >= 1 << 63 for tensor in checkpoint.values() for size in tensor.shape):
            continue  # no array of numpy has such a size
        expected = checkpoint.load("np", borrow=False)
        with checkpoint.stream("np", read_ahead=1 << 16) as stream:
            found = dict(stream)
        assert list(found) == list(expected)
        assert all(sha(found[name]) == sha(expected[name]) for name in found), path
    stream = anamnesis.open(GGUF).stream("np")
    next(stream)
    stream.close()
    assert list(stream) == []


@pytest.mark.parametrize("borrow", [False, True])
def test_writing_to_a_tensor_changes_neither_the_file_nor_others(tmp_path: Path, borrow: bool) -> None:
    path = tmp_path / "large.safetensors"
    large_file(path, 4, 1 << 20)
    before = path.read_bytes()
    checkpoint = anamnesis.open(path)
    first = checkpoint.load("np", borrow=borrow)
    second = checkpoint.load("np", borrow=borrow)
    first["t001"][:] = 77
    assert first["t001"].flags.writeable
    assert second["t001"][0] == 1 and first["t002"][0] == 2 and first["t000"][-1] == 0
    del checkpoint, second
    gc.collect()
    assert first["t003"][5] == 3  # outlives the checkpoint
    assert path.read_bytes() == before


def test_tied_tensors_share_memory() -> None:
    torch = pytest.importorskip("torch")
    path = FIXTURES / "pth" / "state_dict.pth"
    expected = torch.load(path, weights_only=True)
    found = anamnesis.load(path, "pt")
    plain = {k: v for k, v in expected.items() if isinstance(v, torch.Tensor)}
    assert plain.keys() <= found.keys()
    for name, tensor in plain.items():
        assert torch.equal(found[name], tensor), name


def test_memory_returns_to_the_pool_and_to_the_system(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    large_file(path, 8, 4 << 20)
    checkpoint = anamnesis.open(path)
    from anamnesis import _core

    loaded = checkpoint.load("np", borrow=False)
    used, _ = _core.pool_bytes()
    assert used >= 32 << 20
    kept = loaded["t003"]
    del loaded
    gc.collect()
    assert _core.pool_bytes()[0] <= 24 << 20  # at most 16 MiB share a buffer, in the pool's classes of sizes
    assert kept[0] == 3
    del kept
    gc.collect()
    assert _core.pool_bytes()[0] == 0
    assert anamnesis.trim() > 0 and _core.pool_bytes() == (0, 0)


def test_memory_does_not_grow_over_a_thousand_loads() -> None:
    import resource

    checkpoint = anamnesis.open(FIXTURES / "model" / "scribe.safetensors")

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(100):
        checkpoint.load("np", borrow=False)
        checkpoint.load("np", borrow=True)
    before = peak()
    for _ in range(1000):
        checkpoint.load("np", borrow=False)
        checkpoint.load("np", borrow=True)
    assert peak() - before < 8 << 10  # KiB


def test_errors_are_classes_with_places(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        anamnesis.open(tmp_path / "none")
    assert missing.value.errno == 2 and missing.value.filename == str(tmp_path / "none")
    (tmp_path / "a.bin").write_bytes(b"<!DOCTYPE html><html>")
    with pytest.raises(anamnesis.UnknownFormatError) as unknown:
        anamnesis.open(tmp_path / "a.bin")
    assert unknown.value.path == str(tmp_path / "a.bin") and "safetensors" in (unknown.value.remedy or "")
    with pytest.raises(anamnesis.LimitError) as limited:
        anamnesis.open(FIXTURES / "safetensors" / "many.safetensors", limits={"tensors": 10})
    assert (limited.value.limit, limited.value.allowed) == ("tensors", 10)
    assert limited.value.needed > 10 and 'limits={"tensors"' in str(limited.value)
    with pytest.raises(anamnesis.RefusedGlobalError) as refused:
        anamnesis.open(FIXTURES / "pth" / "evil" / "os_system_value.pth")
    assert refused.value.name == "system" and "opaque=True" in (refused.value.remedy or "")
    assert isinstance(pickle.loads(pickle.dumps(refused.value)), anamnesis.RefusedGlobalError)
    with pytest.raises(anamnesis.MalformedError):
        anamnesis.open(struct.pack("<Q", 9) + b'{"a":{}} ')
    checkpoint = anamnesis.open(GGUF)
    for wrong in [lambda: checkpoint.load("tf"), lambda: checkpoint.remember("np", dtype="int8"), lambda: checkpoint.load("np", loader="x")]:
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(KeyError):
        checkpoint.load("np", filter=["none"])


def test_a_checkpoint_is_sent_to_other_processes_and_threads() -> None:
    checkpoint = anamnesis.open(GGUF)
    again = pickle.loads(pickle.dumps(checkpoint))
    assert list(again) == list(checkpoint)
    expected = {name: sha(array) for name, array in checkpoint.load("np").items()}
    wrong: list[str] = []

    def work() -> None:
        for _ in range(20):
            for name, array in checkpoint.load("np", borrow=False).items():
                if sha(array) != expected[name]:
                    wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_loads_and_reads() -> None:
    checkpoint = anamnesis.open(GGUF)
    parents = checkpoint.load("np", borrow=False)
    child = os.fork()
    if child == 0:
        own = checkpoint.load("np", borrow=False)
        same = all(sha(own[name]) == sha(parents[name]) for name in parents)
        del own, parents
        gc.collect()
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_progress_is_reported_and_its_exceptions_end_the_run(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    checkpoint = anamnesis.open(GGUF)
    checkpoint.load("np", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == checkpoint.nbytes

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stop

    out = tmp_path / "out.safetensors"
    path = tmp_path / "large.safetensors"
    large_file(path, 64, 8 << 20)
    with pytest.raises(Stop):
        anamnesis.remember_to(path, out, progress=stop)
    assert sorted(p.name for p in tmp_path.iterdir()) in (["large.safetensors"], ["large.safetensors", "out.safetensors"])


def test_an_interrupt_ends_a_run_soon_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    large_file(path, 64, 8 << 20)
    out = tmp_path / "out"
    out.mkdir()
    program = (
        "import anamnesis, signal, sys, time\n"
        # the parent may ignore interrupts, as a shell's background jobs do
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    while True: anamnesis.remember_to(sys.argv[1], sys.argv[2] + '/a.safetensors', overwrite=True)\n"
        "except KeyboardInterrupt:\n"
        "    print(time.time(), flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path), str(out)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    sent = time.time()
    child.send_signal(signal.SIGINT)
    try:
        printed, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    ended = float(printed)
    assert child.returncode == 0
    assert ended - sent < 2.0  # 0.1 s on a machine without other work
    assert {p.name for p in out.iterdir()} <= {"a.safetensors"}


def test_remember_writes_what_it_makes(tmp_path: Path) -> None:
    made = anamnesis.open(GGUF).remember("np", dtype="f32")
    (file,) = anamnesis.remember_to(GGUF, tmp_path / "a.safetensors", dtype="f32")
    written = anamnesis.load(file, "np")
    assert made.keys() == written.keys()
    assert all(sha(made[name]) == sha(written[name]) for name in made)
    plan = anamnesis.plan(GGUF, dtype="f32")
    assert {output[0] for output in plan["outputs"]} == set(made) and plan["quantised"]
    with pytest.raises(FileExistsError):
        anamnesis.remember_to(GGUF, tmp_path / "a.safetensors")
    one = anamnesis.open(GGUF)["blk.0.attn_q.weight"].remember("np", dtype="float32")
    assert sha(one) == sha(made["blk.0.attn_q.weight"])


def test_an_edit_changes_files_in_place(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    shutil.copyfile(GGUF, path)
    edited = anamnesis.edit(path, set={"general.name": "mine", "x.sizes:[u32]": [1, 2]}, rename={"blk": "block"})
    assert [file["way"] for file in edited] == ["copy"]
    checkpoint = anamnesis.open(path)
    assert checkpoint.metadata["general.name"] == "mine" and list(checkpoint.metadata["x.sizes"]) == [1, 2]
    del checkpoint
    edited = anamnesis.edit(path, unset=["x.sizes"], rename_key={"general.name": "my.name"})
    assert [file["way"] for file in edited] == ["room"]
    assert anamnesis.open(path).metadata["my.name"] == "mine"
    assert anamnesis.edit(path, recover=True) == []
    with pytest.raises(KeyError, match="none"):
        anamnesis.edit(path, unset=["none"])


def test_the_command_is_the_same_program() -> None:
    run = subprocess.run([sys.executable, "-m", "anamnesis", "inspect", "--json", str(GGUF)], capture_output=True, text=True)
    assert run.returncode == 0
    assert json.loads(run.stdout)["checkpoints"][0]["totals"] == anamnesis.inspect(GGUF)["totals"]
    wrong = subprocess.run([sys.executable, "-m", "anamnesis", "inspect", "none"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "none" in wrong.stderr


def test_no_framework_is_imported_before_it_is_requested() -> None:
    program = (
        "import sys, anamnesis; anamnesis.inspect(sys.argv[1])\n"
        "heavy = {'torch', 'numpy', 'jax', 'mlx', 'ml_dtypes', 'transformers', 'diffusers', 'vllm', 'sglang', 'comfy'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", program, str(GGUF)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_shim_reads_as_safetensors_does() -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("safetensors")
    from anamnesis.safetensors import load_file, safe_open

    path = FIXTURES / "model" / "scribe.safetensors"
    with theirs.safe_open(path, "pt") as expected, safe_open(path, "pt") as found:
        assert sorted(found.keys()) == sorted(expected.keys())
        assert found.metadata() == expected.metadata()
        for name in expected.keys():
            assert torch.equal(found.get_tensor(name), expected.get_tensor(name))
            ours, reference = found.get_slice(name), expected.get_slice(name)
            assert ours.get_shape() == reference.get_shape() and ours.get_dtype() == reference.get_dtype()
            assert torch.equal(ours[:2], reference[:2])
    assert load_file(path).keys() == anamnesis.load_file(path).keys()


def test_a_filter_has_the_names_of_the_output(tmp_path: Path) -> None:
    checkpoint = anamnesis.open(GGUF)
    checkpoint.remember_to(f"{tmp_path}/model/", filter="model.layers.0.self_attn.*")
    names = list(anamnesis.open(tmp_path / "model"))
    assert names and all(name.startswith("model.layers.0.self_attn.") for name in names)
    checkpoint.remember_to(tmp_path / "one.safetensors", filter=["blk.0.attn_q.weight"])
    assert list(anamnesis.open(tmp_path / "one.safetensors")) == ["blk.0.attn_q.weight"]
    with pytest.raises(KeyError, match="blk"):
        checkpoint.remember_to(f"{tmp_path}/other/", filter=["blk.0.attn_q.weight"])
