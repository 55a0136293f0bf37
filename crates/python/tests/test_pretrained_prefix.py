"""``from_pretrained`` of checkpoints of trainers, whose weights have other names: the prefix is in the error, and no model is random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="SKIPPED: transformers is not installed")

import anamnesis.transformers  # noqa: E402
from test_transformers import SIZES, llama  # noqa: E402
from transformers import AutoModel, AutoModelForCausalLM, BertConfig, BertModel, LlamaConfig  # noqa: E402


def under(prefix: str) -> dict[str, Any]:
    return {prefix + name: tensor for name, tensor in llama().state_dict().items()}


def dcp(path: Path) -> None:
    import torch.distributed.checkpoint as checkpoint

    checkpoint.save({"state": {"net": llama().state_dict()}}, checkpoint_id=path, no_dist=True)


def optimizer() -> dict[str, Any]:
    return {"state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]}


CHECKPOINTS: dict[str, tuple[Any, str]] = {
    "Lightning": ({"epoch": 1, "state_dict": under("model."), "optimizer_states": [optimizer()]}, "state_dict.model."),
    "Lightning, another attribute": ({"state_dict": under("net.")}, "state_dict.net."),
    "DDP": (under("module."), "module."),
    "DeepSpeed": ({"module": under(""), "optimizer": None, "ds_version": "0.16"}, "module."),
    "FSDP of a wrapper": ({"app": {"inner": under("_module.")}}, "app.inner._module."),
    "torch.distributed.checkpoint": (dcp, "state.net."),
}


def same(model: Any) -> bool:
    expected = llama().state_dict()
    return all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_prefix_is_named_and_taken(name: str, tmp_path: Path) -> None:
    content, prefix = CHECKPOINTS[name]
    path = tmp_path / "some.ckpt"
    if callable(content):
        content(path)
    else:
        torch.save(content, path)
    config = LlamaConfig(**SIZES)
    with pytest.raises(ValueError, match=f"takes 0 weights.*strip_prefix='{prefix}'"):
        anamnesis.transformers.from_pretrained(AutoModelForCausalLM, path, config=config)
    model = anamnesis.transformers.from_pretrained(AutoModelForCausalLM, path, config=config, strip_prefix=prefix, dtype="float32")
    assert same(model)
    with pytest.raises(ValueError, match="no weight has a name that begins with 'wrong.'"):
        anamnesis.transformers.from_pretrained(AutoModelForCausalLM, path, config=config, strip_prefix="wrong.")


def test_a_zero_checkpoint_is_that_of_its_model_states(tmp_path: Path) -> None:
    states = tmp_path / "mp_rank_00_model_states.pt"
    torch.save({"module": under(""), "buffer_names": [], "ds_version": "0.16"}, states)
    model = anamnesis.transformers.from_pretrained(AutoModelForCausalLM, states, config=LlamaConfig(**SIZES), strip_prefix="module.")
    assert same(model)


def test_copies_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "averaged.pth"
    torch.save({**under("model_a."), **under("ema.")}, path)
    with pytest.raises(ValueError, match="strip_prefix='model_a.' or strip_prefix='ema.'"):
        anamnesis.transformers.from_pretrained(AutoModelForCausalLM, path, config=LlamaConfig(**SIZES))


def test_names_that_transformers_maps_need_no_prefix(tmp_path: Path) -> None:
    path = tmp_path / "base.pth"
    torch.save(llama().model.state_dict(), path)
    loaded, info = anamnesis.transformers.from_pretrained(
        AutoModelForCausalLM, path, config=LlamaConfig(**SIZES), output_loading_info=True
    )
    assert set(info["missing_keys"]) == {"lm_head.weight"} and torch.equal(loaded.model.norm.weight, llama().model.norm.weight)
    torch.save(llama().state_dict(), path)
    base = anamnesis.transformers.from_pretrained(AutoModel, path, config=LlamaConfig(**SIZES))
    assert all(torch.equal(tensor, llama().model.state_dict()[name]) for name, tensor in base.state_dict().items())


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pth"
    torch.save(llama().state_dict(), path)
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(ValueError, match="none of the 21 weights, and would be random"):
        anamnesis.transformers.from_pretrained(BertModel, path, config=BertConfig(**sizes))
