"""Lists of models."""

from __future__ import annotations

import shutil
from pathlib import Path

import anamnesis
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


def test_models_of_a_tree_are_listed(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "safetensors" / "sharded", tmp_path / "b")
    shutil.copy(FIXTURES / "model" / "scribe-Q8_0.gguf", tmp_path / "a.gguf")
    (tmp_path / "c.safetensors").write_bytes(b"\xff" * 100)
    a, b, c = anamnesis.ls(tmp_path)
    assert (a.path, a.format, a.quantisation, a.files, a.error) == (str(tmp_path / "a.gguf"), "gguf", "Q8_0", 1, None)
    assert a.architecture == anamnesis.open(a.path).metadata["general.architecture"]
    assert b.format == "safetensors" and b.nbytes is not None and b.parameters == anamnesis.open(b.path).nbytes // 2
    assert c.error is not None and c.parameters is None
    assert [model.path for model in anamnesis.ls(tmp_path, has="lm_head.weight")] == [b.path]
    assert anamnesis.ls(tmp_path, has=["absent"]) == []
    # patterns, which must all match
    assert [model.path for model in anamnesis.ls(tmp_path, has="*attn_q*")] == [a.path]
    assert anamnesis.ls(tmp_path, has=["*attn_q*", "lm_head.weight"]) == []
    with pytest.raises(ValueError, match="has: "):
        anamnesis.ls(tmp_path, has="[")
    with pytest.raises(FileNotFoundError):
        anamnesis.ls(tmp_path / "absent")
