"""transformers loads the same models through this package: under ``loading``, and by ``from_pretrained`` from checkpoints that it
does not read by itself. The models are tiny and random, and made here."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="SKIPPED: transformers is not installed")

import anamnesis  # noqa: E402
import anamnesis.transformers  # noqa: E402
from anamnesis._weights import Weight, Weights  # noqa: E402
from loaded_models import equal, forbidden  # noqa: E402
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM  # noqa: E402

modeling = sys.modules["transformers.modeling_utils"]
SCRIBE = Path(__file__).resolve().parents[3] / "fixtures" / "model" / "scribe-Q8_0.gguf"
SIZES = dict(
    vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
    max_position_embeddings=64,
)  # fmt: skip


def llama(tied: bool = False, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, tie_word_embeddings=tied), dtype=dtype).eval()


def one_file(folder: Path) -> None:
    llama().save_pretrained(folder)


def shards(folder: Path) -> None:
    llama().save_pretrained(folder, max_shard_size="300KB")
    assert len(list(folder.glob("*.safetensors"))) > 2


def one_bin(folder: Path) -> None:
    made = llama()
    made.config.save_pretrained(folder)
    torch.save(made.state_dict(), folder / "pytorch_model.bin")


def bin_shards(folder: Path) -> None:
    made = llama()
    made.config.save_pretrained(folder)
    state, files = made.state_dict(), {}
    for number, names in enumerate((list(state)[:8], list(state)[8:]), 1):
        file = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save({name: state[name] for name in names}, folder / file)
        files.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": 0}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def forbid(patch: pytest.MonkeyPatch) -> None:
    """Lets transformers read no file by itself."""
    for name in ("safe_open", "_safe_load_bytes"):
        patch.setattr(modeling, name, forbidden)
    patch.setattr(torch, "load", forbidden)


@pytest.mark.parametrize("make", [one_file, shards, one_bin, bin_shards], ids=lambda make: make.__name__)
@pytest.mark.parametrize("options", [{}, {"disable_mmap": True}, {"dtype": "bfloat16"}, {"device_map": "cpu"}], ids=str)
def test_models_are_equal(make: Callable[[Path], None], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "device_map" in options:
        pytest.importorskip("accelerate", reason="SKIPPED: accelerate is not installed")
    make(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, **options)
    forbid(monkeypatch)
    with pytest.raises(AssertionError, match="another package"):
        AutoModelForCausalLM.from_pretrained(tmp_path, **options)
    with anamnesis.transformers.loading():
        ours, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True, **options)
    assert not any(info.values()), info
    assert equal(ours, theirs)
    assert modeling.safe_open is forbidden


@pytest.mark.parametrize("make", [one_file, one_bin], ids=lambda make: make.__name__)
def test_the_dtype_of_files_without_one_in_the_configuration(make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({key: value for key, value in json.loads(config.read_text()).items() if key != "dtype"}))
    forbid(monkeypatch)
    with anamnesis.transformers.loading():
        assert LlamaForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype == torch.float32


def test_what_was_loaded_is_independent_of_the_file(tmp_path: Path) -> None:
    one_file(tmp_path)
    with anamnesis.transformers.loading():
        ours = LlamaForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    assert equal(LlamaForCausalLM.from_pretrained(tmp_path), llama())


NAMES = ("safe_open", "_safe_load_bytes", "load_state_dict")


def functions() -> list[Any]:
    others = ("transformers.modeling_layers", "transformers.integrations.accelerate")
    return [getattr(modeling, name) for name in NAMES] + [sys.modules[name].safe_open for name in others]


def test_functions_are_restored_also_after_exceptions_and_nested_use() -> None:
    with anamnesis.transformers.loading():
        pass
    before = functions()
    with pytest.raises(KeyError), anamnesis.transformers.loading():
        assert all(now is not then for now, then in zip(functions(), before, strict=True))
        raise KeyError
    assert functions() == before
    with anamnesis.transformers.loading():
        inside = functions()
        with anamnesis.transformers.loading():
            assert functions() == inside
        assert functions() == inside
    assert functions() == before


def test_the_last_thread_that_leaves_restores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file(tmp_path)
    theirs = llama()
    forbid(monkeypatch)
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with anamnesis.transformers.loading():
            entered.set()
            assert leave.wait(60)
        left.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(60)
    # this thread has not entered, and all threads have the same functions
    assert equal(LlamaForCausalLM.from_pretrained(tmp_path), theirs)
    with anamnesis.transformers.loading():
        leave.set()
        assert left.wait(60)
        assert equal(LlamaForCausalLM.from_pretrained(tmp_path), theirs)
    thread.join()
    assert modeling.safe_open is forbidden
    with pytest.raises(AssertionError, match="another package"):
        LlamaForCausalLM.from_pretrained(tmp_path)


def test_many_threads_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file(tmp_path)
    expected = modeling.load_state_dict(tmp_path / "model.safetensors")
    forbid(monkeypatch)
    wrong: list[Any] = []

    # `from_pretrained` of transformers itself is not for several threads: it replaces `tie_weights` of all models meanwhile
    def read() -> None:
        try:
            for _ in range(20):
                with anamnesis.transformers.loading():
                    found = modeling.load_state_dict(tmp_path / "model.safetensors")
                assert all(torch.equal(found[name], value) for name, value in expected.items())
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and modeling.safe_open is forbidden


def test_a_copied_function_calls_the_original_afterwards(tmp_path: Path) -> None:
    one_file(tmp_path)
    with anamnesis.transformers.loading():
        copied = modeling.safe_open
        file = tmp_path / "model.safetensors"
        assert isinstance(copied(file, framework="pt"), anamnesis.safetensors.safe_open)
    assert isinstance(copied(file, framework="pt"), modeling.safe_open)


def test_a_function_that_another_program_has_replaced_meanwhile_is_left() -> None:
    before = modeling.safe_open
    with anamnesis.transformers.loading():
        modeling.safe_open = forbidden
    assert modeling.safe_open is forbidden
    modeling.safe_open = before


def test_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = functions()
    with monkeypatch.context() as patch:
        patch.delattr(sys.modules["transformers.modeling_layers"], "safe_open")
        with pytest.raises(ImportError, match=rf"transformers {transformers.__version__} has no transformers\.modeling_layers\.safe_open"):
            with anamnesis.transformers.loading():
                raise AssertionError("entered")
        assert [getattr(modeling, name) for name in NAMES] == before[:3]
    with monkeypatch.context() as patch:
        patch.setattr(modeling, "load_state_dict", lambda checkpoint_file, shape=None: None)
        with pytest.raises(ImportError, match="load_state_dict with shape"):
            with anamnesis.transformers.loading():
                raise AssertionError("entered")
    with anamnesis.transformers.loading():
        assert functions() != before
    assert functions() == before


BLOCK = 128


def fp8(folder: Path, tied: bool = False) -> Any:
    """A checkpoint in DeepSeek's form of FP8, and the model that it stands for, computed by PyTorch."""
    from safetensors.torch import load_file, save_file

    made = llama(tied, torch.bfloat16)
    made.save_pretrained(folder)
    stored, values = {}, made.state_dict()
    for name, weight in load_file(folder / "model.safetensors").items():
        if "proj" not in name:
            stored[name] = weight
            continue
        blocks = weight.float().unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
        scales = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
        whole = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        codes = (weight.float() / whole).to(torch.float8_e4m3fn)
        stored |= {name: codes, name + "_scale_inv": scales}
        values[name] = (codes.float() * whole).bfloat16()
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[BLOCK, BLOCK])
    (folder / "config.json").write_text(json.dumps(config))
    made.load_state_dict(values)
    return made


def same_logits(ours: Any, theirs: Any) -> bool:
    with torch.no_grad():
        ids = torch.arange(8)[None]
        return torch.equal(ours(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize("cls", [LlamaForCausalLM, AutoModelForCausalLM])
@pytest.mark.parametrize("tied", [False, True], ids=["", "tied"])
def test_quantised_weights_are_dequantised(cls: Any, tied: bool, tmp_path: Path) -> None:
    expected = fp8(tmp_path, tied)
    ours, info = anamnesis.transformers.from_pretrained(cls, tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert type(ours) is LlamaForCausalLM and not ours.training
    assert equal(ours, expected) and same_logits(ours, expected)
    assert (ours.lm_head.weight is ours.model.embed_tokens.weight) == tied
    assert not hasattr(ours.config, "quantization_config")
    assert ours.config.name_or_path == str(tmp_path)
    # it can be saved and opened as any model
    ours.save_pretrained(tmp_path / "again")
    assert equal(LlamaForCausalLM.from_pretrained(tmp_path / "again"), expected)


@pytest.mark.parametrize("dtype", [torch.float32, "float16", torch.bfloat16])
def test_dtypes(dtype: Any, tmp_path: Path) -> None:
    fp8(tmp_path)
    expected = anamnesis.open(tmp_path).remember("pt", dtype=str(dtype).removeprefix("torch."))
    ours = anamnesis.transformers.from_pretrained(AutoModelForCausalLM, tmp_path, dtype=dtype)
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    assert {value.dtype for value in ours.state_dict().values()} == {wanted}
    for name, value in ours.state_dict().items():
        assert torch.equal(value, expected[name].to(wanted)), name
    with pytest.raises(ValueError, match="float8"):
        anamnesis.transformers.from_pretrained(AutoModelForCausalLM, tmp_path, dtype="float8_e4m3fn")


def test_gguf_files_are_loaded_with_derived_configuration_and_tokenizer(tmp_path: Path) -> None:
    anamnesis.remember_to(SCRIBE, f"{tmp_path}/", dtype="float32")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ours, info = anamnesis.transformers.from_pretrained(AutoModelForCausalLM, SCRIBE, dtype="float32", output_loading_info=True)
    assert not any(info.values()), info
    assert type(ours) is type(theirs)
    assert equal(ours, theirs) and same_logits(ours, theirs)
    assert ours.generation_config.to_dict() == theirs.generation_config.to_dict()
    text = "Remember the names of all tensors."
    tokenizer = anamnesis.transformers.from_pretrained(AutoTokenizer, SCRIBE)
    assert tokenizer(text).input_ids == AutoTokenizer.from_pretrained(tmp_path)(text).input_ids
    config = anamnesis.transformers.from_pretrained(AutoConfig, SCRIBE)
    assert config.num_hidden_layers == theirs.config.num_hidden_layers


def test_a_file_without_a_configuration_needs_one(tmp_path: Path) -> None:
    made = llama(tied=True)
    torch.save(made.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="config="):
        anamnesis.transformers.from_pretrained(LlamaForCausalLM, tmp_path / "weights.pth")
    config = LlamaConfig(**SIZES, tie_word_embeddings=True, quantization_config={"quant_method": "fp8"})
    ours = anamnesis.transformers.from_pretrained(AutoModelForCausalLM, tmp_path / "weights.pth", config=config)
    assert equal(ours, made) and ours.lm_head.weight is ours.model.embed_tokens.weight
    # the caller's configuration is as it was
    assert config.quantization_config


def test_missing_and_unexpected_weights_are_reported_as_by_transformers(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    fp8(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["another.weight"] = tensors.pop("model.norm.weight")
    save_file(tensors, file, {"format": "pt"})
    _, info = anamnesis.transformers.from_pretrained(AutoModelForCausalLM, tmp_path, output_loading_info=True)
    assert info["missing_keys"] == {"model.norm.weight"} and info["unexpected_keys"] == {"another.weight"}
    tensors["model.norm.weight"] = torch.ones(3)
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        anamnesis.transformers.from_pretrained(AutoModelForCausalLM, tmp_path)
    # a weight that cannot be dequantised refuses the checkpoint
    del tensors["model.layers.0.mlp.up_proj.weight_scale_inv"]
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(anamnesis.AnamnesisError, match="up_proj"):
        anamnesis.transformers.from_pretrained(AutoModelForCausalLM, tmp_path)


def test_classes_that_are_no_models_read_a_directory_themselves(tmp_path: Path) -> None:
    one_file(tmp_path)
    with pytest.raises(TypeError, match="AutoConfig.from_pretrained"):
        anamnesis.transformers.from_pretrained(AutoConfig, tmp_path)
    assert type(anamnesis.transformers.from_pretrained(AutoModel, tmp_path)).__name__ == "LlamaModel"


def test_weights_are_made_when_they_are_indexed_and_kept_by_nothing(tmp_path: Path) -> None:
    fp8(tmp_path)
    in_use = anamnesis._core.pool_bytes()[0]
    weights = Weights(anamnesis.open(tmp_path))
    assert anamnesis._core.pool_bytes()[0] == in_use
    name = "model.layers.1.mlp.down_proj.weight"
    made = weights[name][...]
    assert anamnesis._core.pool_bytes()[0] >= in_use + made.nbytes
    assert torch.equal(weights[name][3:5, 7], made[3:5, 7])
    assert weights[name].get_shape() == list(made.shape) and weights[name].get_dtype() == "BF16"
    del made
    assert anamnesis._core.pool_bytes()[0] == in_use
    for weight in weights.values():
        weight[...]
    assert anamnesis._core.pool_bytes()[0] == in_use
    with pytest.raises(KeyError):
        weights["none"]


def test_a_model_takes_the_memory_of_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fp8(tmp_path)
    before, seen = anamnesis._core.pool_bytes()[0], []
    make = Weight.__getitem__

    def measured(weight: Weight, index: Any) -> Any:
        made = make(weight, index)
        seen.append(anamnesis._core.pool_bytes()[0] - before)
        return made

    monkeypatch.setattr(Weight, "__getitem__", measured)
    ours = anamnesis.transformers.from_pretrained(LlamaForCausalLM, tmp_path)
    weights = sum(parameter.nbytes for parameter in ours.parameters())
    # each has been made once, into the memory that the model keeps
    assert len(seen) == len(list(ours.parameters()))
    assert weights <= max(seen) <= 1.25 * weights
    assert weights <= anamnesis._core.pool_bytes()[0] - before
