"""Which tensors a call is for, and their new names: the same options everywhere."""

from __future__ import annotations

from pathlib import Path

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARDED = FIXTURES / "safetensors" / "sharded"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"


def loaded(**options) -> set[str]:
    return set(anamnesis.load(SHARDED, "np", **options))


def streamed(**options) -> set[str]:
    return {name for name, _ in anamnesis.open(SHARDED).stream("np", **options)}


def remembered(**options) -> set[str]:
    return set(anamnesis.remember(SHARDED, "np", **options))


def stream_of_weights(**options) -> set[str]:
    return {name for name, _ in anamnesis.open(SHARDED).stream("np", dequantise=True, **options)}


CALLS = [loaded, streamed, remembered, stream_of_weights]


@pytest.mark.parametrize("call", CALLS)
def test_tensors_are_chosen_and_renamed(call) -> None:
    everything = call()
    assert "lm_head.weight" in everything and len(everything) == 4
    assert call(filter="lm_head.*") == {"lm_head.weight"}
    assert call(filter=["lm_head.weight", "model.embed*"]) == {"lm_head.weight", "model.embed_tokens.weight"}
    assert call(names=["lm_head.weight"]) == {"lm_head.weight"}
    assert call(exclude="model.*") == {name for name in everything if not name.startswith("model.")}
    assert call(exclude=lambda name: name.startswith("model.")) == call(exclude="model.*")
    assert call(strip_prefix="model.") == {name.removeprefix("model.") for name in everything}
    assert call(filter="lm_head.*", rename={"lm_head": "head"}) == {"head.weight"}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_for_no_tensor_is_an_error(call) -> None:
    for options in ({"filter": "nothing.*"}, {"exclude": "nothing.*"}, {"filter": lambda _: False}, {"rename": {"no": "yes"}}, {"strip_prefix": "no."}):
        with pytest.raises(ValueError):
            call(**options)
    with pytest.raises(ValueError):
        call(rename={"*": "same"})
    for options in ({"names": ["nothing"]}, {"filter": ["nothing"]}):
        with pytest.raises(KeyError):
            call(**options)


def test_files_have_the_names(tmp_path: Path) -> None:
    (file,) = anamnesis.remember_to(SHARDED, tmp_path / "a.safetensors", strip_prefix="model.", exclude="lm_head.*")
    assert "embed_tokens.weight" in anamnesis.open(file) and "lm_head.weight" not in anamnesis.open(file)
    (file,) = anamnesis.convert(SHARDED, tmp_path / "b.safetensors", strip_prefix="model.", exclude="lm_head.*")
    assert "embed_tokens.weight" in anamnesis.open(file) and "lm_head.weight" not in anamnesis.open(file)


def test_dtypes_of_frameworks_are_names() -> None:
    expected = anamnesis.remember(GGUF, "np", dtype="float32", filter="blk.0.attn_q.*")
    for dtype in (np.float32, np.dtype("float32"), "F32", "torch.float32"):
        made = anamnesis.remember(GGUF, "np", dtype=dtype, filter="blk.0.attn_q.*")
        assert np.array_equal(made["blk.0.attn_q.weight"], expected["blk.0.attn_q.weight"])
    torch = pytest.importorskip("torch")
    assert anamnesis.remember(GGUF, dtype=torch.float16, filter="blk.0.attn_q.*")["blk.0.attn_q.weight"].dtype == torch.float16


def test_weights_are_streamed_as_they_are_remembered() -> None:
    expected = anamnesis.remember(GGUF, "np", dtype="float32", naming="hf")
    made = dict(anamnesis.open(GGUF).stream("np", dequantise=True, dtype="float32"))
    assert made.keys() == expected.keys()
    assert all(np.array_equal(made[name], expected[name]) for name in made)


def test_values_of_edits_need_a_type(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF.read_bytes())
    with pytest.raises(TypeError, match=":u32"):
        anamnesis.edit(path, set={"my.size": 7})
    anamnesis.edit(path, set={"my.size:u32": 7})
    assert anamnesis.open(path).metadata["my.size"] == 7
    # a key that exists keeps its type
    anamnesis.edit(path, set={"my.size": 8})
    assert anamnesis.open(path).metadata["my.size"] == 8


@pytest.mark.parametrize("value", [None, True, [1, 2], 3, {"a": 1}, float("nan"), object()])
def test_a_text_is_set_to_a_text(value: object, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF.read_bytes())
    with pytest.raises(TypeError, match="general.name"):
        anamnesis.edit(path, set={"general.name": value})
    assert path.read_bytes() == GGUF.read_bytes()
    with pytest.raises(ValueError, match="recover"):
        anamnesis.edit(path, set={"general.name": "x"}, recover=True)


def test_nothing_is_no_model(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    out.write_bytes(b"kept")
    for options in ({"exclude": "*"}, {"filter": []}, {"filter": "lm_head.*", "exclude": "lm_head.*"}):
        with pytest.raises(ValueError, match="no tensor|leave"):
            anamnesis.convert(SHARDED, out, overwrite=True, **options)
    assert out.read_bytes() == b"kept"


def test_plain_tensors_keep_their_dtype_unless_they_are_cast() -> None:
    def kinds(**options) -> set[str]:
        made = {str(array.dtype) for array in anamnesis.remember(SHARDED, "np", dtype="float32", **options).values()}
        streamed = anamnesis.open(SHARDED).stream("np", dequantise=True, dtype="float32", **options)
        assert made == {str(array.dtype) for _, array in streamed}
        return made

    assert kinds() == {"bfloat16"} and kinds(cast=True) == {"float32"}


def test_progress_is_a_bar(capfd: pytest.CaptureFixture[str]) -> None:
    anamnesis.load(SHARDED, "np", borrow=False, progress=True)
    assert capfd.readouterr().err


def test_names_are_completed_and_described() -> None:
    checkpoint = anamnesis.open(GGUF)
    assert "blk.0.attn_q.weight" in checkpoint._ipython_key_completions_()
    assert "blk.0.attn_q.weight" in checkpoint["blk.0.attn_q.weight"]._repr_html_()
    assert "<table>" in checkpoint.plan()._repr_html_()
    assert "documents" in dir(anamnesis) and anamnesis.documents.FitDocument
