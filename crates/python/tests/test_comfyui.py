"""The reader of ComfyUI's models, with a stand-in for the module that has it. Where ``COMFYUI_SOURCE`` names the folder of ComfyUI's
source, its function is compared with the stand-in's."""

from __future__ import annotations

import ast
import sys
from collections import OrderedDict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")

import anamnesis  # noqa: E402
import anamnesis.comfyui  # noqa: E402
import engine_models  # noqa: E402
import numpy as np  # noqa: E402
from engine_models import SCRIBE, STANDIN, signatures  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2, dtype=torch.bfloat16)}


@pytest.fixture
def utils(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if "comfy" in sys.modules:
        pytest.skip("SKIPPED: ComfyUI itself is imported")
    monkeypatch.syspath_prepend(str(STANDIN))
    yield import_module("comfy.utils")
    for name in [name for name in sys.modules if name.split(".")[0] == "comfy"]:
        del sys.modules[name]


@pytest.fixture
def replaced(utils: Any) -> Iterator[Any]:
    with anamnesis.comfyui.loading():
        yield utils


def check(found: Any, path: Path, expected: dict[str, Any] = WEIGHTS) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name
        # where ComfyUI looks for the disk of a model
        assert found[name].untyped_storage()._comfy_source_path == str(path)


@pytest.mark.parametrize("name", ["model.safetensors", "model.SFT"])
def test_safetensors_and_their_metadata(replaced: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save_file(WEIGHTS, path, metadata={"modelspec.title": "mine"})
    check(replaced.load_torch_file(str(path)), path)
    found, metadata = replaced.load_torch_file(str(path), safe_load=True, device=torch.device("cpu"), return_metadata=True)
    check(found, path)
    assert metadata == {"modelspec.title": "mine"}
    save_file(WEIGHTS, path)
    assert replaced.load_torch_file(str(path), return_metadata=True)[1] is None
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(anamnesis.AnamnesisError, match=name):
        replaced.load_torch_file(str(path))
    assert not replaced.CALLS


def test_files_of_pytorch(replaced: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    for saved in (WEIGHTS, OrderedDict(WEIGHTS), {"state_dict": WEIGHTS, "epoch": 3}, {"params": WEIGHTS}):
        torch.save(saved, path)
        check(replaced.load_torch_file(str(path)), path)
    # one weight is not a dictionary of them
    torch.save({"only": WEIGHTS["a.bias"]}, path)
    check(replaced.load_torch_file(str(path)), path, {"only": WEIGHTS["a.bias"]})
    found, metadata = replaced.load_torch_file(str(path), return_metadata=True)
    assert metadata is None and found.keys() == {"only"}
    assert not replaced.CALLS


class Callback:
    """An object that a trainer stores beside the weights, and for which PyTorch would run code."""

    def __init__(self) -> None:
        self.best = np.float32(0.5)


def test_objects_of_trainers_are_not_made(replaced: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.ckpt"
    torch.save({"state_dict": WEIGHTS, "callbacks": {Callback: {"best": Callback()}}, "hyper": Callback()}, path)
    monkeypatch.setattr(Callback, "__setstate__", lambda *_: pytest.fail("code of the file has run"), raising=False)
    check(replaced.load_torch_file(str(path)), path)
    # among the weights they are refused
    for saved in ({"state_dict": {**WEIGHTS, "x": Callback()}}, {**WEIGHTS, "x": Callback()}):
        torch.save(saved, path)
        with pytest.raises(anamnesis.RefusedGlobalError, match="Callback"):
            replaced.load_torch_file(str(path))


def test_options_of_comfyui_decide_about_maps(replaced: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save_file(WEIGHTS, path)
    asked: list[Any] = []
    load = anamnesis.Checkpoint.load
    monkeypatch.setattr(anamnesis.Checkpoint, "load", lambda self, *args, **options: asked.append(options["borrow"]) or load(self, *args, **options))
    for disabled in (True, False):
        monkeypatch.setattr(replaced, "DISABLE_MMAP", disabled)
        check(replaced.load_torch_file(str(path)), path)
    assert asked == [False, "auto"]
    path, maps = tmp_path / "model.pt", Path("/proc/self/maps")
    torch.save({"large": torch.ones(1 << 20)}, path)
    for mapped in (True, False) if maps.exists() else ():
        monkeypatch.setattr(replaced, "MMAP_TORCH_FILES", mapped)
        found = replaced.load_torch_file(str(path))
        assert (str(path) in maps.read_text()) == mapped
        del found


def test_a_gguf_is_dequantised(replaced: Any) -> None:
    expected = anamnesis.remember(SCRIBE, "pt")
    check(replaced.load_torch_file(str(SCRIBE), device=torch.device("cpu")), SCRIBE, dict(expected))


def test_files_of_the_offloader_are_left_to_it(replaced: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = import_module("comfy.memory_management")
    monkeypatch.setattr(memory, "aimdo_enabled", True)
    path = tmp_path / "model.safetensors"
    save_file(WEIGHTS, path)
    assert replaced.load_torch_file(str(path)) == {} and replaced.CALLS == [str(path)]
    # it maps safetensors only
    torch.save(WEIGHTS, tmp_path / "model.pt")
    check(replaced.load_torch_file(str(tmp_path / "model.pt")), tmp_path / "model.pt")
    # earlier versions have neither it nor its list of files
    monkeypatch.setitem(sys.modules, "comfy.memory_management", None)
    monkeypatch.setitem(sys.modules, "comfy.storage", None)
    monkeypatch.delattr(sys.modules["comfy"], "memory_management")
    assert replaced.load_torch_file(str(path)).keys() == WEIGHTS.keys()


def test_the_function_is_replaced_for_good_or_for_a_while(utils: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = utils.load_torch_file
    with anamnesis.comfyui.loading():
        assert utils.load_torch_file is not original
    assert utils.load_torch_file is original
    anamnesis.comfyui.install()
    anamnesis.comfyui.install()
    assert utils.load_torch_file is not original
    # the replacement ends with this test
    anamnesis.comfyui._REPLACEMENTS.__exit__()
    anamnesis.comfyui._install.cache_clear()
    assert utils.load_torch_file is original

    def later(ckpt: Any, safe_load: bool = False, device: Any = None, return_metadata: bool = False, quantised: bool = False) -> None:
        """The function of a version to come."""

    monkeypatch.setattr(utils, "load_torch_file", later)
    with pytest.raises(ImportError, match="quantised"):
        anamnesis.comfyui.install()
    assert utils.load_torch_file is later


def test_a_node_of_one_line_replaces_it(utils: Any, tmp_path: Path) -> None:
    before = utils.load_torch_file
    document = (Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text()
    line = next(line for line in document.splitlines() if "anamnesis.comfyui.install()" in line and line.startswith("import"))
    node = tmp_path / "anamnesis_loader.py"
    node.write_text(line + "\n")
    try:
        exec(compile(node.read_text(), str(node), "exec"), {})  # noqa: S102  as ComfyUI imports its custom nodes
        assert utils.load_torch_file is not before
    finally:
        anamnesis.comfyui._REPLACEMENTS.__exit__()
        anamnesis.comfyui._install.cache_clear()


def test_the_stand_in_has_the_signature_of_comfyui() -> None:
    theirs = signatures(engine_models.source("COMFYUI_SOURCE", "comfy/utils.py"))
    ours = signatures(ast.parse((STANDIN / "comfy" / "utils.py").read_text()))
    assert ours == {name: theirs.get(name) for name in ours}
    storage = signatures(engine_models.source("COMFYUI_SOURCE", "comfy/storage.py"))
    assert storage["annotate_state_dict"] == signatures(ast.parse((STANDIN / "comfy" / "storage.py").read_text()))["annotate_state_dict"]
    text = ast.unparse(engine_models.source("COMFYUI_SOURCE", "comfy/utils.py"))
    for name in ("MMAP_TORCH_FILES", "DISABLE_MMAP", "comfy.memory_management.aimdo_enabled", "comfy.storage.annotate_state_dict"):
        assert name in text, name
