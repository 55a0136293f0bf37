"""Wherever a path goes, a URL works or is refused by name: nothing writes to a local folder ``s3:``."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anamnesis
import anamnesis.numpy
import anamnesis.ray
import anamnesis.safetensors
import anamnesis.safetensors.numpy
import anamnesis.vllm
import numpy as np
import pytest
from anamnesis._parts import shared_path
from test_remote import RangeHandler

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
FILE = "safetensors/all_dtypes.safetensors"
MODEL = "model/scribe-Q8_0.gguf"

# texts that begin as a URL and are none that is opened
MISTAKES: list[Any] = [
    "s3:/bucket/model.safetensors",
    "https:/host/model.safetensors",
    Path("s3://bucket/model.safetensors"),
    Path("hf://org/model"),
    Path("ms://owner/model"),
    Path("oci://registry/model:tag"),
    "ollama:/model:tag",
    "gcs://bucket/model.safetensors",
    "ftp://host/model.safetensors",
    "file:///tmp/model.safetensors",
]


def _torch_load(path: Any) -> Any:
    return import_module("anamnesis.torch").load(path)


def _load_file(module: str) -> Callable[[Any], Any]:
    return lambda path: import_module(f"anamnesis.safetensors.{module}").load_file(path)


def _from_pretrained(path: Any) -> Any:
    return import_module("anamnesis.transformers").from_pretrained(object, path)


def _writer(path: Any) -> Any:
    with anamnesis.TensorWriter(path, {"t": ("F32", (1,))}) as out:
        out.write("t", b"\0\0\0\0")


# by the qualified name of the function and its parameter
READS: dict[str, Callable[[Any], Any]] = {
    "anamnesis.open(source)": anamnesis.open,
    "anamnesis.Checkpoint(source)": anamnesis.Checkpoint,
    "anamnesis.load(source)": lambda path: anamnesis.load(path, "np"),
    "anamnesis.load_file(source)": anamnesis.load_file,
    "anamnesis.inspect(source)": anamnesis.inspect,
    "anamnesis.plan(source)": anamnesis.plan,
    "anamnesis.predict(source)": anamnesis.predict,
    "anamnesis.ls(root)": anamnesis.ls,
    "anamnesis.convert(source)": lambda path: anamnesis.convert(path, "copy.safetensors", void=True),
    "anamnesis.remember(source)": lambda path: anamnesis.remember(path, "np"),
    "anamnesis.remember_to(source)": lambda path: anamnesis.remember_to(path, "made.safetensors"),
    "anamnesis.parts(source)": lambda path: anamnesis.parts(path, "made"),
    "anamnesis.fit(source)": anamnesis.fit,
    "anamnesis.check(source)": anamnesis.check,
    "anamnesis.digest(source)": anamnesis.digest,
    "anamnesis.report(source)": lambda path: anamnesis.report(path, "page.html"),
    "anamnesis.warm(source)": anamnesis.warm,
    "anamnesis.Template.open(path)": anamnesis.Template.open,
    "anamnesis.torch.load(f)": _torch_load,
    "anamnesis.numpy.load(file)": anamnesis.numpy.load,
    "anamnesis.safetensors.safe_open(filename)": lambda path: anamnesis.safetensors.safe_open(path, "np").keys(),
    "anamnesis.safetensors.load_file(filename)": anamnesis.safetensors.load_file,
    "anamnesis.safetensors.torch.load_file(filename)": _load_file("torch"),
    "anamnesis.safetensors.numpy.load_file(filename)": _load_file("numpy"),
    "anamnesis.transformers.from_pretrained(path)": _from_pretrained,
    "anamnesis.ray.remember_to(src)": lambda path: anamnesis.ray.remember_to(path, "made"),
    "anamnesis.ray.load(src)": lambda path: anamnesis.ray.load(path, 0, 1, "np"),
    "anamnesis.ray.inspect(prefix)": anamnesis.ray.inspect,
    "anamnesis.vllm.checkpoints(found)": lambda path: anamnesis.vllm.checkpoints(os.fspath(path), None)[0],
    "anamnesis.vllm.folder(model)": lambda path: anamnesis.vllm.folder(os.fspath(path), None, load_config=None),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "anamnesis.remember_to(out)": lambda path: anamnesis.remember_to(FIXTURES / MODEL, path),
    "anamnesis.parts(out)": lambda path: anamnesis.parts(FIXTURES / MODEL, path),
    "anamnesis.digest(out)": lambda path: anamnesis.digest(FIXTURES / MODEL, path),
    "anamnesis.report(out)": lambda path: anamnesis.report(FIXTURES / MODEL, path),
    "anamnesis.Checkpoint.remember_to(out)": lambda path: anamnesis.open(FIXTURES / MODEL).remember_to(path),
    "anamnesis.convert(out)": lambda path: anamnesis.convert(FIXTURES / FILE, path, void=True),
    "anamnesis.TensorWriter(out)": _writer,
    "anamnesis.edit(path)": lambda path: anamnesis.edit(path, set={"a": "b"}),
    "anamnesis.Template.save(path)": lambda path: anamnesis.predict(FIXTURES / MODEL).save(path),
    "anamnesis.ray.remember_to(dst)": lambda path: anamnesis.ray.remember_to(FIXTURES / MODEL, path),
}
# frameworks that a call imports before it looks at its path
NEEDED = {
    "anamnesis.load_file(source)": "torch",
    "anamnesis.torch.load(f)": "torch",
    "anamnesis.safetensors.load_file(filename)": "torch",
    "anamnesis.safetensors.torch.load_file(filename)": "torch",
    "anamnesis.transformers.from_pretrained(path)": "transformers",
    "anamnesis.ray.load(src)": None,
}


def needs(name: str) -> None:
    package = NEEDED.get(name)
    if package is not None and find_spec(package) is None:
        pytest.skip(f"SKIPPED: {package} is not installed")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, which is empty afterwards too."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), RangeHandler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()


@pytest.mark.parametrize("path", MISTAKES, ids=str)
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_a_url_with_a_mistake_is_refused_by_name(name: str, path: Any, empty: Path) -> None:
    needs(name)
    with pytest.raises(ValueError, match="URL"):
        {**READS, **WRITES}[name](path)


@pytest.mark.parametrize("name", WRITES)
def test_what_cannot_be_written_to_is_refused(name: str, empty: Path) -> None:
    # no server listens, and none of these is a place for objects
    with pytest.raises((ValueError, OSError, anamnesis.UnsupportedError)) as caught:
        WRITES[name]("http://name:word@127.0.0.1:9/out/model.safetensors?secret=1")
    assert "word" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["anamnesis.Template.save(path)", "anamnesis.ray.remember_to(dst)", "anamnesis.edit(path)"])
def test_a_bucket_is_refused_by_what_needs_a_local_path(name: str, empty: Path) -> None:
    with pytest.raises((ValueError, anamnesis.UnsupportedError), match="s3://bucket/out|URL"):
        WRITES[name]("s3://bucket/out/")


# those that open one file of any format
OPENED = [
    "anamnesis.open(source)", "anamnesis.Checkpoint(source)", "anamnesis.load(source)", "anamnesis.load_file(source)",
    "anamnesis.torch.load(f)", "anamnesis.numpy.load(file)", "anamnesis.safetensors.load_file(filename)", "anamnesis.safetensors.torch.load_file(filename)",
    "anamnesis.safetensors.safe_open(filename)", "anamnesis.safetensors.numpy.load_file(filename)", "anamnesis.ray.load(src)",
    "anamnesis.vllm.checkpoints(found)", "anamnesis.inspect(source)", "anamnesis.plan(source)", "anamnesis.predict(source)",
]  # fmt: skip


@pytest.mark.parametrize("name", OPENED)
def test_a_url_is_read(name: str, server: str, empty: Path) -> None:
    needs(name)
    found, expected = READS[name](f"{server}/{FILE}"), READS[name](str(FIXTURES / FILE))
    assert type(found) is type(expected) and (not hasattr(found, "__len__") or len(found) == len(expected))


def test_a_url_is_converted_and_dequantised(server: str, tmp_path: Path) -> None:
    (copy,) = anamnesis.convert(f"{server}/{FILE}", tmp_path / "copy.safetensors")
    assert list(anamnesis.open(copy)) == list(anamnesis.open(FIXTURES / FILE))
    (made,) = anamnesis.remember_to(f"{server}/{MODEL}", tmp_path / "made.safetensors")
    local = anamnesis.remember_to(FIXTURES / MODEL, tmp_path / "local.safetensors")[0]
    ours, theirs = anamnesis.load(made, "np"), anamnesis.load(local, "np")
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[n].view("u1"), theirs[n].view("u1")) for n in ours)


def test_models_of_a_url_are_left_to_what_opens_them(server: str) -> None:
    assert anamnesis.vllm.folder("s3://bucket/model", None, load_config=None) == "s3://bucket/model"
    with pytest.raises(ValueError, match=r"s3://bucket/model.*\*\.bin"):
        anamnesis.vllm.checkpoints("s3://bucket/model?secret", ["*.bin"])
    # a source by its URL, and not by a path below the working directory
    assert shared_path(f"{server}/{FILE}") == f"{server}/{FILE}"
    assert shared_path("model") == os.path.abspath("model")


def test_a_prefix_without_a_model_is_an_error(tmp_path: Path) -> None:
    for prefix in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            anamnesis.ray.inspect(prefix)
    assert anamnesis.ray._found(str(FIXTURES / "safetensors" / "sharded")) == [str(FIXTURES / "safetensors" / "sharded")]


def test_a_directory_of_such_a_name_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.makedirs("s3:/bucket")
    anamnesis.remember_to(FIXTURES / MODEL, "s3:/bucket/out.safetensors")
    assert len(anamnesis.open("./s3:/bucket/out.safetensors")) == len(anamnesis.open("s3:/bucket/out.safetensors"))


# parameters that have a path
PATHS = {"source", "path", "out", "src", "dst", "prefix", "root", "filename", "f"}
# the table has all of their functions
MODULES = ["anamnesis", "anamnesis.ray"]


def test_every_public_function_with_a_path_is_in_the_table() -> None:
    known = {*READS, *WRITES}
    missing = []
    for module_name in MODULES:
        module = import_module(module_name)
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in public:
            value = getattr(module, name)
            if not callable(value) or not getattr(value, "__module__", "").startswith(module_name):
                continue
            functions = {name: value}
            if isinstance(value, type):
                if issubclass(value, (Exception, tuple, dict)):
                    continue
                methods = inspect.getmembers(value, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
                functions |= {f"{name}.{method}": function for method, function in methods if not method.startswith("_")}
            for called, function in functions.items():
                for parameter in PATHS & inspect.signature(function).parameters.keys():
                    # made by `ls` and `parts`, which have the paths; tensors that are loaded into
                    is_memory = parameter == "out" and called.endswith("load")
                    if called not in ("ModelEntry", "Parts") and not is_memory and f"{module_name}.{called}({parameter})" not in known:
                        missing.append(f"{module_name}.{called}({parameter})")
    assert missing == []
