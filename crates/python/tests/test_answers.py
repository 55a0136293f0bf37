"""The verbs of the command as functions: their documents are the command's, and nothing is written to the streams of the process."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import anamnesis
import pytest
from anamnesis import documents

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SHARDED = FIXTURES / "safetensors" / "sharded"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"


def printed(*arguments: str | Path) -> dict:
    run = subprocess.run([sys.executable, "-m", "anamnesis", *map(str, arguments)], capture_output=True, text=True, check=False)
    return json.loads(run.stdout)


def without_time(document: dict) -> dict:
    return {key: value for key, value in document.items() if key not in ("seconds", "read", "cached")}


def test_fit_is_the_document_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    found = anamnesis.fit(GGUF, memory=1 << 30, context=64, kv="q8_0")
    assert found == printed("fit", "--json", "--memory", "1GiB", "--context", "64", "--kv", "q8_0", GGUF)["models"][0]
    assert capfd.readouterr() == ("", "")


def test_diff_is_the_document_of_the_command() -> None:
    found = anamnesis.diff(SHARDED, GGUF, filter="*norm*", metadata=True)
    assert found == printed("diff", "--json", "--filter", "*norm*", "--metadata", SHARDED, GGUF)
    assert anamnesis.diff(GGUF, GGUF, values=True)["same"]


def test_check_is_the_document_of_the_command() -> None:
    reported: list[tuple[int, int]] = []
    found = anamnesis.check(GGUF, stats=True, progress=lambda *bytes: reported.append(bytes))
    assert without_time(dict(found)) == without_time(printed("check", "--json", "--stats", GGUF)["models"][0])
    assert reported and reported[-1][0] == reported[-1][1] > 0


def test_notes_of_a_plan_are_warnings(tmp_path: Path) -> None:
    """GPTQ without a configuration is read as version 1, which the command says too."""
    model = tmp_path / "model.safetensors"
    model.write_bytes((FIXTURES / "quant/gptq/4bit_seq_sym_v1/model.safetensors").read_bytes())
    said = anamnesis.open(model).plan()["notes"]
    assert any("version 1" in note for note in said)
    for make in (
        lambda: anamnesis.remember(model, "np"),
        lambda: anamnesis.remember_to(model, tmp_path / "out.safetensors"),
        lambda: list(anamnesis.open(model).stream("np", dequantise=True)),
    ):
        with pytest.warns(UserWarning, match="version 1"):
            make()


def test_digests_are_of_the_files(tmp_path: Path) -> None:
    found = anamnesis.digest(SHARDED)
    assert {path: hashlib.sha256((SHARDED / path).read_bytes()).hexdigest() for path in found} == found
    assert len(found) >= 3
    listed = tmp_path / "digests"
    assert anamnesis.digest(SHARDED, listed) == found
    assert all(digest in listed.read_text() for digest in found.values())
    with pytest.raises(FileExistsError):
        anamnesis.digest(SHARDED, listed)


def test_warm_and_report(tmp_path: Path) -> None:
    if sys.platform == "linux":
        warmed = anamnesis.warm(SHARDED)
        assert warmed["read"] + warmed["cached"] >= warmed["nbytes"] > 0 and warmed["end"] == "complete"
    page = tmp_path / "page.html"
    anamnesis.report(GGUF, page)
    assert b"scribe" in page.read_bytes()
    with pytest.raises(FileExistsError):
        anamnesis.report(GGUF, page)


@pytest.mark.parametrize("verb", ["fit", "check", "digest"])
def test_a_model_that_cannot_be_read_is_an_exception(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    function = getattr(anamnesis, verb)
    with pytest.raises(FileNotFoundError) as missing:
        function(tmp_path / "missing.safetensors")
    assert "missing.safetensors" in str(missing.value)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(GGUF.read_bytes()[:100])
    if verb == "fit":
        with pytest.raises(anamnesis.MalformedError) as malformed:
            function(damaged)
        assert malformed.value.path == str(damaged)
    assert capfd.readouterr() == ("", "")


def test_dtypes_and_numbers_of_fit() -> None:
    numpy = pytest.importorskip("numpy")
    expected = anamnesis.fit(GGUF, dtype="f32")["weights"]
    assert expected["dtype"] != "stored"
    assert anamnesis.fit(GGUF, dtype="float32")["weights"] == anamnesis.fit(GGUF, dtype=numpy.float32)["weights"] == expected
    for options in ({"tp": True}, {"context": True}, {"memory": 1.5}):
        with pytest.raises(TypeError):
            anamnesis.fit(GGUF, **options)  # type: ignore[arg-type]
    assert anamnesis.fit(GGUF, overhead=0) == anamnesis.fit(GGUF)


def test_an_invalid_argument_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        anamnesis.check(GGUF, filter="nothing.*")
    with pytest.raises(ValueError, match="bogus"):
        anamnesis.fit(GGUF, engine="bogus")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keyword", "call"),
    [
        ("engine", lambda: anamnesis.fit(GGUF, engine="bogus")),  # type: ignore[arg-type]
        ("context", lambda: anamnesis.fit(GGUF, context=-1)),
        ("kv", lambda: anamnesis.report(GGUF, "page.html", kv="bogus")),
        ("only", lambda: anamnesis.check(GGUF, only="bogus")),
        ("filter", lambda: anamnesis.check(GGUF, filter="bogus")),
        ("rename", lambda: anamnesis.diff(GGUF, GGUF, rename={"bogus": "b"})),
        ("max_abs", lambda: anamnesis.diff(GGUF, GGUF, max_abs=-1)),
        ("max_abs", lambda: anamnesis.diff(GGUF, GGUF, max_abs=1, quick=True)),
        ("threshold", lambda: anamnesis.warm(GGUF, threshold=200)),
        ("bandwidth", lambda: anamnesis.warm(GGUF, bandwidth=0)),
    ],
)
def test_messages_of_the_command_name_keywords(keyword: str, call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if keyword in ("threshold", "bandwidth") and sys.platform != "linux":
        pytest.skip("SKIPPED: models are warmed on Linux")
    with pytest.raises(ValueError, match=rf"\b{keyword}\b") as caught:
        call()
    # neither an option of a shell nor lines for a terminal
    assert "--" not in str(caught.value) and "\n" not in str(caught.value), caught.value


def test_numbers_of_bytes_are_named() -> None:
    for call in (
        lambda: anamnesis.fit(GGUF, memory="5GB"),  # type: ignore[arg-type]
        lambda: anamnesis.warm(GGUF, bandwidth=1.5),  # type: ignore[arg-type]
        lambda: anamnesis.remember_to(GGUF, "out/", shard_size="5GB"),  # type: ignore[arg-type]
        lambda: anamnesis.convert(SHARDED, "out/", shard_size="5GB"),  # type: ignore[arg-type]
        lambda: anamnesis.parts(GGUF, "out/", shard_size=True),
        lambda: anamnesis.TensorWriter("out/", {"w": ("F32", (2,))}, shard_size="5GB"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"^(memory|bandwidth|shard_size): a whole number of bytes, not (True|1\.5|'5GB')$"):
            call()


def test_errors_of_the_system_have_its_texts(tmp_path: Path) -> None:
    none = tmp_path / "none"
    for call in (lambda: anamnesis.fit(none), lambda: anamnesis.report(GGUF, none / "page.html"), lambda: anamnesis.open(none)):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert caught.value.strerror == os.strerror(errno.ENOENT) and str(none) in str(caught.value.filename)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (documents.FitDocument, lambda: anamnesis.fit(GGUF, memory=1 << 30)),
        (documents.FitMemory, lambda: anamnesis.fit(GGUF, memory=1 << 30)["memory"]),
        (documents.FitRank, lambda: anamnesis.fit(GGUF)["ranks"][0]),
        (documents.DiffDocument, lambda: anamnesis.diff(SHARDED, GGUF)),
        (documents.TensorDifference, lambda: anamnesis.diff(SHARDED, GGUF)["tensors"][0]),
        (documents.CheckDocument, lambda: anamnesis.check(GGUF)),
        (documents.CheckedFile, lambda: anamnesis.check(GGUF)["files"][0]),
    ],
)
def test_types_have_the_fields_of_documents(kind: type, document) -> None:
    fields = set(get_type_hints(kind)) - {"omitted"}
    assert set(document()) == fields
