"""The examples in docstrings run, each in an empty folder in which ``fixtures`` is, and each public function has one."""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import anamnesis
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
# those whose functions need nothing but PyTorch; docs/python.md has examples for the others
MODULES = ["anamnesis", "anamnesis.numpy", "anamnesis.torch", "anamnesis.safetensors", "anamnesis.safetensors.numpy", "anamnesis.safetensors.torch"]
# with which other packages reach into memory
LOW_LEVEL = {"serialize", "serialize_file", "deserialize", "storage_ptr", "storage_size"}


def functions(module: Any) -> Iterator[tuple[str, Any]]:
    """The public functions of a module, and public methods of its classes that are the package's."""
    names = getattr(module, "__all__", None) or [name for name, it in vars(module).items() if getattr(it, "__module__", None) == module.__name__]
    for name in names:
        it = getattr(module, name)
        if inspect.isfunction(it) and not name.startswith("_") and name not in LOW_LEVEL:
            yield f"{module.__name__}.{name}", it
        elif inspect.isclass(it) and not issubclass(it, BaseException) and module is anamnesis:
            yield f"{module.__name__}.{name}", it
            for method, function in vars(it).items():
                if not method.startswith("_") and isinstance(function, classmethod | FunctionType):
                    yield f"{module.__name__}.{name}.{method}", getattr(it, method)


def public() -> list[tuple[str, Any]]:
    return [found for name in MODULES if "torch" not in name or find_spec("torch") for found in functions(import_module(name))]


def examples(name: str, it: Any) -> list[doctest.DocTest]:
    return doctest.DocTestFinder(recurse=False).find(it, name, globs={"anamnesis": anamnesis})


# classes that other functions return, which the page describes, and methods of theirs that are steps of other calls
WITHOUT = {
    "anamnesis.Coverage", "anamnesis.Group", "anamnesis.Loaded", "anamnesis.ModelEntry", "anamnesis.Parts", "anamnesis.Plan", "anamnesis.Stream",
    "anamnesis.Stream.close", "anamnesis.Summary", "anamnesis.Summary.to_dict", "anamnesis.Template", "anamnesis.Tensor", "anamnesis.Tensor.part",
    "anamnesis.Tensor.selection",
}  # fmt: skip


def test_each_public_function_has_an_example() -> None:
    without = {name for name, it in public() if not any(found.examples for found in examples(name, it))}
    assert without - WITHOUT == set() and len(public()) > 40


@pytest.mark.parametrize(("name", "it"), public(), ids=[name for name, _ in public()])
def test_examples_run(name: str, it: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "anamnesis.warm" and sys.platform != "linux":
        pytest.skip("SKIPPED: models are warmed on Linux")
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    for found in examples(name, it):
        text = "".join(example.source + example.want for example in found.examples)
        # the default framework
        if ("torch" in text or "load_file(" in text) and find_spec("torch") is None:
            pytest.skip("SKIPPED: PyTorch is not installed")
        said: list[str] = []
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(found, out=said.append)
        assert result.failed == 0, "".join(said)
