"""diffusers loads the same models through this package, and pipelines with models of transformers. All are tiny and random, and
made here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
diffusers = pytest.importorskip("diffusers", reason="SKIPPED: diffusers is not installed")

import anamnesis  # noqa: E402
import anamnesis.diffusers  # noqa: E402
import safetensors.torch  # noqa: E402
from diffusers import AutoencoderKL, UNet2DModel  # noqa: E402
from diffusers.loaders import single_file_utils  # noqa: E402
from diffusers.models import model_loading_utils, modeling_utils  # noqa: E402
from loaded_models import equal, forbidden  # noqa: E402

MODULES = (modeling_utils, model_loading_utils, single_file_utils)


def unet() -> Any:
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip


def forbid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(safetensors.torch, "load_file", forbidden)
    patch.setattr(safetensors.torch, "load", forbidden)
    patch.setattr(torch, "load", forbidden)
    if "transformers.modeling_utils" in sys.modules:
        patch.setattr(sys.modules["transformers.modeling_utils"], "safe_open", forbidden)


@pytest.mark.parametrize("size", ["1GB", "500KB"], ids=["one file", "shards"])
@pytest.mark.parametrize("as_safetensors", [True, False], ids=["safetensors", "bin"])
@pytest.mark.parametrize("options", [{}, {"disable_mmap": True}, {"low_cpu_mem_usage": False}, {"torch_dtype": torch.bfloat16}], ids=str)
def test_models_are_equal(
    size: str, as_safetensors: bool, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unet().save_pretrained(tmp_path, max_shard_size=size, safe_serialization=as_safetensors)
    assert (len(list(tmp_path.glob("*.index.json"))) == 1) == (size == "500KB")
    options = {**options, "use_safetensors": as_safetensors}
    theirs = UNet2DModel.from_pretrained(tmp_path, **options)
    forbid(monkeypatch)
    with anamnesis.diffusers.loading():
        ours, info = UNet2DModel.from_pretrained(tmp_path, output_loading_info=True, **options)
    assert not any(info.values()), info
    assert equal(ours, theirs)


def test_shards_that_are_read_by_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unet().save_pretrained(tmp_path, max_shard_size="500KB")
    # diffusers reads the environment when it is imported
    monkeypatch.setattr(modeling_utils, "HF_ENABLE_PARALLEL_LOADING", True)
    forbid(monkeypatch)
    with anamnesis.diffusers.loading():
        assert equal(UNet2DModel.from_pretrained(tmp_path), unet())


def test_files_of_whole_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = unet().state_dict()
    torch.save({"state_dict": state, "global_step": 1}, tmp_path / "model.ckpt")
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    forbid(monkeypatch)
    for file in ("model.ckpt", "model.safetensors"):
        with anamnesis.diffusers.loading():
            # the function that `from_single_file` calls
            found = single_file_utils.load_single_file_checkpoint(str(tmp_path / file))
        assert found.keys() == state.keys()
        assert all(torch.equal(found[name], state[name]) for name in state)


def test_pipelines_are_read_through_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="SKIPPED: transformers is not installed")
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(1)
    words = ["<|startoftext|>", "<|endoftext|>", *"abc", "a</w>", "b</w>", "c</w>"]
    text = CLIPTextConfig(
        vocab_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    made = StableDiffusionPipeline(
        vae=AutoencoderKL(block_out_channels=(32,), norm_num_groups=8, latent_channels=4),
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer({word: number for number, word in enumerate(words)}, [], model_max_length=16),
        unet=UNet2DConditionModel(
            sample_size=8, block_out_channels=(32, 32), layers_per_block=1, cross_attention_dim=32, norm_num_groups=8,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        scheduler=DDIMScheduler(), safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    made.save_pretrained(tmp_path)
    forbid(monkeypatch)
    with anamnesis.diffusers.loading():
        ours = StableDiffusionPipeline.from_pretrained(tmp_path)
    for part in ("vae", "text_encoder", "unet"):
        assert equal(getattr(ours, part), getattr(made, part)), part


def test_functions_are_restored_and_other_versions_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [module.load_state_dict for module in MODULES]
    with pytest.raises(KeyError), anamnesis.diffusers.loading():
        assert all(module.load_state_dict is not then for module, then in zip(MODULES, before, strict=True))
        raise KeyError
    assert [module.load_state_dict for module in MODULES] == before
    monkeypatch.delattr(model_loading_utils, "load_state_dict")
    with pytest.raises(ImportError, match=rf"diffusers {diffusers.__version__} has no .*model_loading_utils\.load_state_dict"):
        with anamnesis.diffusers.loading():
            raise AssertionError("entered")
    assert modeling_utils.load_state_dict is before[0]


def test_quantised_gguf_parameters_are_those_of_diffusers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf", reason="SKIPPED: gguf is not installed")
    file = Path(__file__).resolve().parents[3] / "fixtures" / "model" / "scribe-Q8_0.gguf"
    theirs = modeling_utils.load_state_dict(str(file))
    with anamnesis.diffusers.loading():
        ours = modeling_utils.load_state_dict(str(file))
    assert ours.keys() == theirs.keys() and {type(value).__name__ for value in ours.values()} == {
        type(value).__name__ for value in theirs.values()
    }
