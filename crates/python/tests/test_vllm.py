"""The load format of vLLM, with a stand-in for the part of vLLM that it uses. Where ``VLLM_SOURCE`` names the folder of an unpacked
source distribution of vLLM, the signatures of the stand-in are compared with those there."""

from __future__ import annotations

import ast
import gc
import json
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
import engine_models  # noqa: E402
from engine_models import SCRIBE, STANDIN, Model, check, fields, shapes, signatures  # noqa: E402

LOADER = "vllm.model_executor.model_loader"


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    before = {name for name in sys.modules if name.split(".")[0] == "vllm"}
    if before:
        pytest.skip("SKIPPED: vLLM itself is imported")
    # torchao's stand-in is for the tests that use a stand-in for vLLM
    torchao = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "torchao"}
    monkeypatch.syspath_prepend(str(STANDIN))
    for name in torchao:
        del sys.modules[name]
    anamnesis.vllm.register()
    yield import_module(LOADER)
    for name in [name for name in sys.modules if name.split(".")[0] in ("vllm", "torchao")]:
        del sys.modules[name]
    sys.modules.update(torchao)


def load_config(**extra: Any) -> Any:
    return SimpleNamespace(load_format="anamnesis", download_dir="cache", ignore_patterns=["original/**/*"], model_loader_extra_config=extra)


def model_config(model: Any, **more: Any) -> Any:
    return SimpleNamespace(**{"model": str(model), "revision": None, "quantization": None, "dtype": torch.bfloat16, "is_moe": False, **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    for number in (1, 2):
        tensors = {f"layers.{number}.{name}": torch.randn(64, 1024) for name in range(16)}
        save_file(tensors, tmp_path / f"model-{number:05}-of-00002.safetensors")
    return tmp_path


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
            allow_patterns_overrides=["model-00001-*.safetensors"], is_unused_weight=None,
        )
    ]  # fmt: skip
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert len(model.seen) == len(whole) + len(first)

    model = Model(first)
    model.is_unused_checkpoint_weight = lambda name: name.startswith("layers.2.")
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert sorted(model.seen) == sorted(first)


def test_directories_without_an_index(vllm: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    parts = [{f"{file}.{number}": torch.full((3,), float(number)) for number in range(2)} for file in "ab"]
    expected = parts[0] | parts[1]
    wanted = {name: (3,) for name in expected}

    def loaded(**more: Any) -> Model:
        model = Model(wanted)
        vllm.get_model_loader(load_config()).load_weights(model, model_config(tmp_path, **more))
        return model

    for file, part in zip("ab", parts, strict=True):
        torch.save(part, tmp_path / f"{file}.bin")
    # a trainer's
    torch.save({"state": {}}, tmp_path / "optimizer.bin")
    check(loaded(), expected)
    # the first one of several kinds of files
    for file, part in zip("ab", parts, strict=True):
        save_file({name: value + 1 for name, value in part.items()}, tmp_path / f"{file}.safetensors")
    check(loaded(), {name: value + 1 for name, value in expected.items()})
    # an index names the files, and is trusted
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(parts[0], "a.safetensors")}))
    with pytest.raises(ValueError, match="b_0, b_1"):
        loaded()
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(anamnesis.MissingPartError, match="a.safetensors"):
        loaded()


def test_the_experts_of_other_processes_are_not_read(vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    names = [f"layers.0.mlp.experts.{number}.up.weight" for number in range(8)]
    scales = [name + "_scale" for name in names]
    save_file({name: torch.full((4,), float(at)) for at, name in enumerate([*names, *scales, "norm.weight"])}, tmp_path / "model.safetensors")
    expected = anamnesis.load(tmp_path, "pt")
    config, groups = import_module("vllm.config").PARALLEL, import_module("vllm.distributed").RANKS

    def loaded(**more: Any) -> list[str]:
        model = Model(shapes(tmp_path))
        moe = model_config(tmp_path, quantization="fp8", **{"is_moe": True, "get_num_experts": lambda: 8, **more})
        vllm.get_model_loader(load_config()).load_weights(model, moe)
        check(model, {name: expected[name] for name in model.seen})
        return [name for name in names if name in model.seen]

    def parallel(**more: Any) -> None:
        for name, value in more.items():
            monkeypatch.setattr(config, name, value)

    assert loaded() == names
    parallel(enable_expert_parallel=True, enable_ep_weight_filter=True)
    # one process has all of them, and has no groups
    assert loaded() == names
    parallel(tensor_parallel_size=2)
    for rank in range(2):
        groups.update(tp=rank)
        assert loaded() == names[4 * rank : 4 * rank + 4]
    # the ranks of the outer group count first
    parallel(data_parallel_size=2)
    for dp, tp in ((0, 1), (1, 0)):
        groups.update(dp=dp, tp=tp)
        assert loaded() == names[4 * dp + 2 * tp : 4 * dp + 2 * tp + 2]
    parallel(data_parallel_size=1, prefill_context_parallel_size=2)
    groups.update(pcp=1, tp=0)
    assert loaded() == names[4:6]
    parallel(expert_placement_strategy="round_robin")
    assert loaded() == names[2::4]
    # copies of experts may be anywhere; other models have no experts
    assert loaded(is_moe=False) == loaded(get_num_experts=lambda: 0) == names
    parallel(enable_eplb=True)
    assert loaded() == names
    parallel(enable_eplb=False, enable_ep_weight_filter=False)
    assert loaded() == names


def test_what_a_model_does_not_use_is_not_read(vllm: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    stream = anamnesis.Checkpoint.stream
    monkeypatch.setattr(anamnesis.Checkpoint, "stream", lambda self, *args, **options: asked.append(options) or stream(self, *args, **options))
    model = Model({name: shape for name, shape in shapes(folder).items() if name.startswith("layers.1.")})
    model.is_unused_checkpoint_weight = lambda name: name.startswith("layers.2.")
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert sorted(asked[0]["names"]) == sorted(model.seen)
    model = Model({})
    model.is_unused_checkpoint_weight = lambda name: True
    vllm.get_model_loader(load_config()).load_weights(model, model_config(folder))
    assert model.seen == [] and len(asked) == 1


def torchao_parts() -> tuple[dict[str, Any], dict[str, str]]:
    """Two tensors of torchao in parts, and a plain one; and the metadata that describe them."""
    parts = {f"layer.{at}._weight_{part}": torch.full((2,), 10.0 * at + of) for at in range(2) for of, part in enumerate(("qdata", "scale"))}
    described = {f"layer.{at}.weight": {"_type": "Parted", "_data": {}, "_tensor_data_names": ["qdata", "scale"]} for at in range(2)}
    described["norm.weight"] = {"_type": "Tensor"}
    metadata = {name: json.dumps(value) for name, value in described.items()} | {"tensor_names": json.dumps(list(described))}
    return {**parts, "norm.weight": torch.ones(2)}, metadata


def test_parts_of_torchao_are_joined(vllm: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    class Taker:
        def load_weights(self, weights: Iterator[tuple[str, Any]]) -> None:
            self.loaded = dict(weights)

    def loaded(**more: Any) -> dict[str, Any]:
        model = Taker()
        vllm.get_model_loader(load_config()).load_weights(model, model_config(tmp_path, **more))
        return model.loaded

    stored, metadata = torchao_parts()
    save_file(stored, tmp_path / "model.safetensors", metadata=metadata)
    assert loaded(quantization=None).keys() == stored.keys()

    def check_joined() -> None:
        found = loaded(quantization="torchao")
        assert found.keys() == {"layer.0.weight", "layer.1.weight", "norm.weight"}
        assert torch.equal(found["norm.weight"], stored["norm.weight"])
        for at in range(2):
            joined = found[f"layer.{at}.weight"]
            assert joined["type"] == "Parted" and joined.keys() == {"type", "qdata", "scale"}
            assert all(torch.equal(joined[part], stored[f"layer.{at}._weight_{part}"]) for part in ("qdata", "scale"))

    check_joined()
    # the parts of one tensor in two files
    (tmp_path / "model.safetensors").unlink()
    for number, some in enumerate((["layer.0._weight_scale", "layer.1._weight_qdata"], ["layer.0._weight_qdata", "layer.1._weight_scale", "norm.weight"])):
        save_file({name: stored[name] for name in some}, tmp_path / f"model-{number + 1:05}-of-00002.safetensors", metadata=metadata)
    check_joined()
    (tmp_path / "model-00002-of-00002.safetensors").rename(tmp_path / "other.safetensors")
    (tmp_path / "model-00001-of-00002.safetensors").rename(tmp_path / "one.safetensors")
    check_joined()
    (tmp_path / "other.safetensors").unlink()
    with pytest.raises(ValueError, match=r"'layer.0.weight' of torchao lacks the parts layer\.0\._weight_qdata"):
        loaded(quantization="torchao")


def test_torchao_itself_joins_its_tensors(tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="SKIPPED: torchao is not installed")
    from anamnesis._torchao import joined
    from safetensors.torch import save_file
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 16)).to(torch.bfloat16)
    quantize_(model, Int8WeightOnlyConfig(version=2))
    state = {name: value.data for name, value in model.state_dict().items()}
    stored, metadata = flatten_tensor_state_dict(state)
    assert len(stored) > len(state)
    save_file(stored, tmp_path / "model.safetensors", metadata=metadata)
    checkpoint = anamnesis.open(tmp_path)
    with checkpoint.stream("torch") as stream:
        found = dict(joined(stream, checkpoint.metadata))
    assert found.keys() == state.keys()
    for name, value in state.items():
        assert type(found[name]) is type(value), name
        same = found[name].dequantize() if hasattr(value, "dequantize") and type(value) is not torch.Tensor else found[name]
        assert torch.equal(same, value.dequantize() if same is not found[name] else value), name


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
    return engine_models.source("VLLM_SOURCE", f"vllm/{path}")


@pytest.mark.parametrize("file", ["__init__.py", "base_loader.py", "weight_utils.py", "ep_weight_filter.py"])
def test_the_stand_in_has_the_signatures_of_vllm(file: str) -> None:
    path = f"model_executor/model_loader/{file}"
    theirs = signatures(source(path))
    ours = {name: found for name, found in signatures(ast.parse((STANDIN / "vllm" / path).read_text())).items() if name != "register"}
    assert ours and ours == {name: theirs.get(name) for name in ours}
    methods = {"BaseModelLoader.download_model", "BaseModelLoader.load_weights"}
    assert methods <= theirs.keys() if file == "base_loader.py" else True


def test_vllm_has_the_attributes_that_are_used(vllm: Any) -> None:
    assert {"load_format", "download_dir", "ignore_patterns", "model_loader_extra_config"} <= fields(source("config/load.py"), "LoadConfig")
    assert {"model", "revision", "quantization", "dtype"} <= fields(source("config/model.py"), "ModelConfig")
    default = source("model_executor/model_loader/default_loader.py")
    assert {"model_or_path", "revision", "subfolder", "prefix", "allow_patterns_overrides", "is_unused_weight"} <= fields(default, "Source")
    parallel = fields(source("config/parallel.py"), "ParallelConfig")
    assert vars(import_module("vllm.config").PARALLEL).keys() <= parallel
    assert {"get_dp_group", "get_pcp_group", "get_tensor_model_parallel_rank"} <= signatures(source("distributed/parallel_state.py")).keys()
    assert {"ModelConfig.is_moe", "ModelConfig.get_num_experts"} <= signatures(source("config/model.py")).keys()
    text = ast.unparse(default)
    for attribute in ("allow_patterns_overrides", "is_unused_checkpoint_weight", "secondary_weights"):
        assert f"'{attribute}'" in text, attribute
    assert "'vllm.general_plugins'" in ast.unparse(source("plugins/__init__.py"))
