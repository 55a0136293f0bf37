"""The load format of vLLM, with a stand-in for the part of vLLM that it uses. Where ``VLLM_SOURCE`` names the folder of an unpacked
source distribution of vLLM, the signatures of the stand-in are compared with those there."""

from __future__ import annotations

import ast
import gc
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")

import anamnesis  # noqa: E402
import anamnesis.vllm  # noqa: E402

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[2] / "fixtures"
SCRIBE = FIXTURES / "model" / "scribe-Q8_0.gguf"
STANDIN = HERE / "standin"
LOADER = "vllm.model_executor.model_loader"


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    before = {name for name in sys.modules if name.split(".")[0] == "vllm"}
    if before:
        pytest.skip("SKIPPED: vLLM itself is imported")
    monkeypatch.syspath_prepend(str(STANDIN))
    anamnesis.vllm.register()
    yield import_module(LOADER)
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]


class Model(torch.nn.Module):
    """A model that loads as vLLM's models do: names and tensors, one by one, copied into its parameters."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], dtype: Any = torch.float32) -> None:
        super().__init__()
        self.names = {name: name.replace(".", "_") for name in shapes}
        for name, shape in shapes.items():
            self.register_parameter(self.names[name], torch.nn.Parameter(torch.full(shape, -1.0, dtype=dtype), False))
        self.seen: list[str] = []
        self.in_use = 0

    def load_weights(self, weights: Iterator[tuple[str, Any]]) -> set[str]:
        for name, weight in weights:
            self.seen.append(name)
            parameter = getattr(self, self.names[name])
            assert parameter.shape == weight.shape, name
            parameter.copy_(weight)
            self.in_use = max(self.in_use, anamnesis._core.pool_bytes()[0])
        return {self.names[name] for name in self.seen}


def load_config(**extra: Any) -> Any:
    return SimpleNamespace(load_format="anamnesis", download_dir="cache", ignore_patterns=["original/**/*"], model_loader_extra_config=extra)


def model_config(model: Any, **more: Any) -> Any:
    return SimpleNamespace(**{"model": str(model), "revision": None, "quantization": None, "dtype": torch.bfloat16, **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    for number in (1, 2):
        tensors = {f"layers.{number}.{name}": torch.randn(64, 1024) for name in range(16)}
        save_file(tensors, tmp_path / f"model-{number:05}-of-00002.safetensors")
    return tmp_path


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in anamnesis.open(path).items()}


def check(model: Model, expected: dict[str, Any], dtype: Any = torch.float32) -> None:
    assert sorted(model.seen) == sorted(expected)
    for name, value in expected.items():
        assert torch.equal(getattr(model, model.names[name]), value.to(dtype)), name


def in_use() -> int:
    """Bytes of the pool that are in use, without tensors of other tests that are in cycles."""
    gc.collect()
    used: int = anamnesis._core.pool_bytes()[0]
    return used


def test_a_directory_is_loaded_tensor_by_tensor(vllm: Any, folder: Path) -> None:
    before = in_use()
    model, read_ahead = Model(shapes(folder)), 1 << 20
    loader = vllm.get_model_loader(load_config(read_ahead=read_ahead, loader="pread"))
    config = model_config(folder)
    loader.download_model(config)
    loader.load_weights(model, config)
    check(model, anamnesis.load(folder, "pt"))
    # the read-ahead, and the bytes that the tensors in use share with their neighbours; all have 8 MiB
    assert 0 < model.in_use - before <= 3 * read_ahead
    assert in_use() == before


def test_a_model_of_the_hub_is_found_in_its_cache(vllm: Any, folder: Path, tmp_path: Path) -> None:
    # as the hub's cache is laid out: links to files that are named by their hash
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(folder.glob("*.safetensors"))):
        (tmp_path / f"blob{number}").write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(tmp_path / f"blob{number}")
    hub = import_module(f"{LOADER}.weight_utils").HUB
    hub["folder"] = str(snapshot)
    model = Model(shapes(folder))
    loader = vllm.get_model_loader(load_config())
    config = model_config("owner/name", revision="main")
    loader.download_model(config)
    loader.load_weights(model, config)
    check(model, anamnesis.load(folder, "pt"))
    assert hub["calls"] == 2 * [("owner/name", "cache", ["*.safetensors", "*.bin", "*.pt"], "main", None, ["original/**/*"])]


def test_a_gguf_is_dequantised_for_the_model_of_a_directory(vllm: Any, folder: Path) -> None:
    expected = anamnesis.open(SCRIBE).remember("pt", dtype="bfloat16", naming="hf")
    before = in_use()
    model = Model({name: tuple(value.shape) for name, value in expected.items()}, torch.bfloat16)
    largest = max(value.nbytes for value in expected.values())
    # the directory is not what is read
    loader = vllm.get_model_loader(load_config(source=str(SCRIBE), dequantise=True))
    config = model_config("owner/name")
    loader.download_model(config)
    loader.load_weights(model, config)
    check(model, expected, torch.bfloat16)
    # one that is used, and the next one
    assert model.in_use - before <= 2 * largest + 4096 and len(expected) > 10
    with pytest.raises(ValueError, match="dequantise"):
        vllm.get_model_loader(load_config(source=str(SCRIBE))).load_weights(model, config)


def test_weights_that_are_missing_are_refused(vllm: Any, folder: Path) -> None:
    wanted = {**shapes(folder), "layers.3.0": (2,)}
    loader = vllm.get_model_loader(load_config())
    with pytest.raises(ValueError, match="layers_3_0"):
        loader.load_weights(Model(wanted), model_config(folder))
    # parameters of layers that make them themselves
    model = Model(shapes(folder))
    model.cache = torch.nn.Module()
    model.cache.scale = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="cache.scale"):
        loader.load_weights(model, model_config(folder))
    model.cache.quant_method = SimpleNamespace(process_weights_after_loading=print)
    loader.load_weights(model, model_config(folder))
    # vLLM makes parameters for quantised weights that no checkpoint has
    loader.load_weights(Model(wanted), model_config(folder, quantization="fp8"))


def test_models_that_read_some_files_or_several_checkpoints(vllm: Any, folder: Path) -> None:
    first = {name: shape for name, shape in shapes(folder).items() if name.startswith("layers.1.")}
    model = Model(first)
    model.allow_patterns_overrides = ["consolidated*.safetensors", "model-00001-*.safetensors"]
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert sorted(model.seen) == sorted(first)
    model.allow_patterns_overrides = ["consolidated*.safetensors"]
    with pytest.raises(ValueError, match="consolidated"):
        vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))

    whole = shapes(folder)
    model = Model({**whole, **{"draft." + name: shape for name, shape in first.items()}})
    model.secondary_weights = [
        SimpleNamespace(
            model_or_path=str(folder.parent), revision=None, subfolder=folder.name, prefix="draft.",
            allow_patterns_overrides=["model-00001-*.safetensors"],
        )
    ]  # fmt: skip
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert len(model.seen) == len(whole) + len(first)

    model = Model(first)
    model.is_unused_checkpoint_weight = lambda name: name.startswith("layers.2.")
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert sorted(model.seen) == sorted(first)


@pytest.mark.parametrize(
    ("extra", "message"),
    [({"threads": 4}, "'threads' is unknown"), ({"read_ahead": "4"}, "type int"), ({"read_ahead": True}, "type int"), ({"dequantise": 1}, "type bool")],
)
def test_options_are_checked(vllm: Any, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vllm.get_model_loader(load_config(**extra))
    with pytest.raises(ValueError, match="dictionary"):
        anamnesis.vllm.checked_options([])


def test_the_entry_point_is_that_of_the_installed_package(vllm: Any) -> None:
    points = [point for point in entry_points(group="vllm.general_plugins") if point.name == "anamnesis"]
    assert len(points) == 1
    # plugins may be loaded several times
    points[0].load()()
    points[0].load()()
    assert vllm.LOADERS["anamnesis"].__name__ == "AnamnesisModelLoader"


def source(path: str) -> ast.Module:
    folder = os.environ.get("VLLM_SOURCE")
    if not folder:
        pytest.skip("SKIPPED: VLLM_SOURCE names no source of vLLM")
    return ast.parse((Path(folder) / "vllm" / path).read_text())


def signatures(tree: ast.AST) -> dict[str, tuple[list[str], list[str]]]:
    """Names of parameters and their defaults, of functions and methods."""
    found = {}
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef):
                name = f"{parent.name}.{node.name}" if isinstance(parent, ast.ClassDef) else node.name
                parameters = [one.arg for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
                found[name] = parameters, [ast.unparse(one) for one in node.args.defaults]
    return found


@pytest.mark.parametrize("file", ["__init__.py", "base_loader.py", "weight_utils.py"])
def test_the_stand_in_has_the_signatures_of_vllm(file: str) -> None:
    path = f"model_executor/model_loader/{file}"
    theirs = signatures(source(path))
    ours = {name: found for name, found in signatures(ast.parse((STANDIN / "vllm" / path).read_text())).items() if name != "register"}
    assert ours and ours == {name: theirs.get(name) for name in ours}
    methods = {"BaseModelLoader.download_model", "BaseModelLoader.load_weights"}
    assert methods <= theirs.keys() if file == "base_loader.py" else True


def fields(tree: ast.Module, name: str) -> set[str]:
    node = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


def test_vllm_has_the_attributes_that_are_used() -> None:
    assert {"load_format", "download_dir", "ignore_patterns", "model_loader_extra_config"} <= fields(source("config/load.py"), "LoadConfig")
    assert {"model", "revision", "quantization", "dtype"} <= fields(source("config/model.py"), "ModelConfig")
    default = source("model_executor/model_loader/default_loader.py")
    assert {"model_or_path", "revision", "subfolder", "prefix", "allow_patterns_overrides"} <= fields(default, "Source")
    text = ast.unparse(default)
    for attribute in ("allow_patterns_overrides", "is_unused_checkpoint_weight", "secondary_weights"):
        assert f"'{attribute}'" in text, attribute
    assert "'vllm.general_plugins'" in ast.unparse(source("plugins/__init__.py"))
