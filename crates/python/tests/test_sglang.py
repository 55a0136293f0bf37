"""The load format of SGLang, with a stand-in for the part of SGLang that it uses. Where ``SGLANG_SOURCE`` names the folder that contains
the package ``sglang``, the signatures of the stand-in are compared with those there, and its registry of hooks applies ours."""

from __future__ import annotations

import ast
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
import anamnesis.sglang  # noqa: E402
import engine_models  # noqa: E402
from engine_models import SCRIBE, STANDIN, Model, check, fields, shapes, signatures  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

SRT = "sglang.srt"
FILES = ["plugins/__init__.py", "plugins/hook_registry.py", "configs/load_config.py", "model_loader/loader.py", "model_loader/weight_utils.py"]


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if "sglang" in sys.modules:
        pytest.skip("SKIPPED: SGLang itself is imported")
    monkeypatch.syspath_prepend(str(STANDIN))
    anamnesis.sglang._register.cache_clear()
    anamnesis.sglang._loader_class.cache_clear()
    anamnesis.sglang.register()
    import_module(f"{SRT}.plugins").HookRegistry.apply_hooks()
    yield import_module(f"{SRT}.model_loader.loader")
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        del sys.modules[name]


def load_config(options: Any = None, load_format: str = "anamnesis", **more: Any) -> Any:
    return import_module(f"{SRT}.configs.load_config").LoadConfig(load_format, model_loader_extra_config=options, **more)


def loaded(sglang: Any, make: Any, model: Any, options: Any = None, *, hf_config: Any = None, **more: Any) -> Any:
    config = SimpleNamespace(model_path=str(model), revision=None, dtype=torch.bfloat16, make=make, hf_config=hf_config)
    loader = sglang.get_model_loader(load_config(options, **more), config)
    loader.download_model(config)
    return loader.load_model(model_config=config, device_config=SimpleNamespace(device="cpu"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    for number in (1, 2):
        tensors = {f"layers.{number}.{name}": torch.randn(16, 8) for name in range(4)}
        save_file(tensors, tmp_path / f"model-{number:05}-of-00002.safetensors")
    return tmp_path


def test_the_format_is_a_choice_and_its_loader_is_ours(sglang: Any) -> None:
    assert import_module(f"{SRT}.server_args").LOAD_FORMAT_CHOICES.count("anamnesis") == 1
    formats = import_module(f"{SRT}.configs.load_config").LoadFormat
    assert load_config().load_format is load_config(load_format="ANAMNESIS").load_format is anamnesis.sglang._loader_class()
    # the others are SGLang's
    assert load_config(load_format="Safetensors").load_format is formats.SAFETENSORS
    assert load_config(load_format=formats.AUTO).load_format is formats.AUTO
    with pytest.raises(ValueError, match="anamnesia"):
        load_config(load_format="anamnesia")
    # online updates of weights are for loaders of this base only
    assert isinstance(sglang.get_model_loader(load_config()), sglang.DefaultModelLoader)
    assert type(sglang.get_model_loader(load_config(load_format="auto"))) is sglang.DefaultModelLoader


def test_models_are_loaded_tensor_by_tensor(sglang: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    stream = anamnesis.Checkpoint.stream
    monkeypatch.setattr(anamnesis.Checkpoint, "stream", lambda self, *args, **options: asked.append(options) or stream(self, *args, **options))
    model = loaded(sglang, lambda: Model(shapes(folder)), folder, '{"read_ahead": 4096, "loader": "pread"}')
    check(model, anamnesis.load(folder, "pt"))
    assert len(asked) == 2 and all(one["read_ahead"] == 4096 and one["loader"] == "pread" for one in asked)
    # a name of the hub, where SGLang finds the files
    sglang.HUB["owner/name"] = folder
    check(loaded(sglang, lambda: Model(shapes(folder)), "owner/name"), anamnesis.load(folder, "pt"))


def test_files_that_the_model_names_and_further_ones(sglang: Any, folder: Path) -> None:
    first = {name: shape for name, shape in shapes(folder).items() if name.startswith("layers.1.")}

    def some() -> Model:
        model = Model(first)
        model.allow_patterns_overrides = ["model-00001-*.safetensors"]
        return model

    assert sorted(loaded(sglang, some, folder).seen) == sorted(first)
    # a file that is packaged beside the files of the index
    (folder / "more").mkdir()
    save_file({"mtp.weight": torch.ones(2)}, folder / "more" / "mtp.safetensors")
    whole = {**shapes(folder), "mtp.weight": (2,)}
    model = loaded(sglang, lambda: Model(whole), folder, hf_config=SimpleNamespace(has_mtp=True))
    assert sorted(model.seen) == sorted(whole)

    def several() -> Model:
        model = Model({**shapes(folder), **{"draft." + name: shape for name, shape in first.items()}})
        first_file = sglang.DefaultModelLoader.Source(str(folder), None, "draft.", allow_patterns_overrides=["model-00001-*.safetensors"])
        model.secondary_weights = [first_file]
        return model

    assert len(loaded(sglang, several, folder).seen) == len(shapes(folder)) + len(first)


def test_drafts_take_one_of_several_layers(sglang: Any, tmp_path: Path) -> None:
    names = ["embed.weight", "model.mtp.layers.0.w", "model.mtp.layers.1.w"]
    save_file({name: torch.full((2,), float(at)) for at, name in enumerate(names)}, tmp_path / "model.safetensors")
    model = loaded(sglang, lambda: Model(shapes(tmp_path)), tmp_path, draft_model_idx=1)
    assert sorted(model.seen) == [names[0], names[2]]


def test_a_gguf_is_dequantised_for_the_model_of_a_directory(sglang: Any, folder: Path) -> None:
    expected = anamnesis.open(SCRIBE).remember("pt", dtype="bfloat16", naming="hf")

    def make() -> Model:
        return Model({name: tuple(value.shape) for name, value in expected.items()}, torch.bfloat16)

    # nothing has to be found or downloaded
    model = loaded(sglang, make, "owner/name", {"source": str(SCRIBE), "dequantise": True})
    check(model, expected, torch.bfloat16)
    with pytest.raises(ValueError, match="dequantise"):
        loaded(sglang, make, "owner/name", {"source": str(SCRIBE)})

    def several() -> Model:
        model = make()
        for name, shape in shapes(folder).items():
            model.names[name] = name.replace(".", "_")
            model.register_parameter(model.names[name], torch.nn.Parameter(torch.zeros(shape), False))
        model.secondary_weights = [sglang.DefaultModelLoader.Source(str(folder), None)]
        return model

    # which is for the model, and not for the checkpoints beside it
    model = loaded(sglang, several, "owner/name", {"source": str(SCRIBE), "dequantise": True})
    assert sorted(model.seen) == sorted([*expected, *shapes(folder)])


def test_what_cannot_be_opened_is_an_error_before_the_model_changes(sglang: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 32)
    loader = sglang.get_model_loader(load_config())
    source = sglang.DefaultModelLoader.Source(str(tmp_path), None)
    # as SGLang reads new weights into a model that runs
    with pytest.raises(anamnesis.AnamnesisError):
        loader._get_weights_iterator(source)
    for options, message in (({"threads": 4}, "'threads' is unknown"), ('{"read_ahead": "4"}', "type int"), ("[1]", "dictionary")):
        with pytest.raises(ValueError, match=message):
            sglang.get_model_loader(load_config(options))


def test_the_installed_package_has_the_entry_point(sglang: Any) -> None:
    points = [point for point in entry_points(group="sglang.srt.plugins") if point.name == "anamnesis"]
    assert len(points) == 1
    # plugins may be loaded several times
    points[0].load()()
    points[0].load()()
    assert import_module(f"{SRT}.server_args").LOAD_FORMAT_CHOICES.count("anamnesis") == 1
    assert load_config().load_format is anamnesis.sglang._loader_class()


def source(path: str) -> ast.Module:
    return engine_models.source("SGLANG_SOURCE", f"sglang/srt/{path}")


@pytest.mark.parametrize("file", FILES)
def test_the_stand_in_has_the_signatures_of_sglang(file: str) -> None:
    theirs = signatures(source(file))
    ours = signatures(ast.parse((STANDIN / "sglang" / "srt" / file).read_text()))
    # functions that the stand-in alone has
    own = {"around", "called", "Source.init_new"}
    ours = {name: found[0] for name, found in ours.items() if name not in own}
    assert ours and ours == {name: theirs[name][0] if name in theirs else None for name in ours}


def test_sglang_has_what_is_used() -> None:
    load = source("configs/load_config.py")
    used = {"load_format", "download_dir", "model_loader_extra_config", "ignore_patterns", "draft_model_idx"}
    assert used <= fields(load, "LoadConfig") and "dataclass" in ast.unparse(load)
    loader = source("model_loader/loader.py")
    assert {"model_or_path", "revision", "prefix", "fall_back_to_pt", "allow_patterns_overrides", "model_config"} <= fields(loader, "Source")
    assert "weight_files" in fields(loader, "ResolvedSource")
    # a class that replaces a format is called with the configuration
    text = ast.unparse(loader)
    assert "if isinstance(load_config.load_format, type):\n        return load_config.load_format(load_config)" in text
    assert "if not isinstance(self.load_format, str):\n            return" in ast.unparse(load)
    assert "with set_default_torch_dtype(model_config.dtype):" in text
    assert "add_load_format_choices" in ast.unparse(source("server_args.py"))
    assert "'sglang.srt.plugins'" in ast.unparse(source("plugins/__init__.py"))


def test_the_registry_of_sglang_applies_the_hook(sglang: Any) -> None:
    scope: dict[str, Any] = {"__name__": "registry"}
    exec(compile(source("plugins/hook_registry.py"), "hook_registry.py", "exec"), scope)  # noqa: S102  imports the standard library only
    configs = import_module(f"{SRT}.configs.load_config")
    configs.LoadConfig._verify_load_format = configs.LoadConfig._verify_load_format.__wrapped__
    with pytest.raises(ValueError, match="anamnesis"):
        load_config()
    registry = scope["HookRegistry"]
    target = f"{SRT}.configs.load_config.LoadConfig._verify_load_format"
    registry.register(target, anamnesis.sglang.choose_loader, scope["HookType"].AROUND)
    registry.apply_hooks()
    assert load_config().load_format is anamnesis.sglang._loader_class()
    assert load_config(load_format="auto").load_format is configs.LoadFormat.AUTO
