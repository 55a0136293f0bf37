"""The common part of the tests of vLLM and SGLang: a model that takes weights one by one, and signatures of sources."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anamnesis
import pytest
import torch

HERE = Path(__file__).resolve().parent
STANDIN = HERE / "standin"
SCRIBE = HERE.parents[2] / "fixtures" / "model" / "scribe-Q8_0.gguf"


class Model(torch.nn.Module):
    """Names and tensors, one by one, are copied into its parameters."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], dtype: Any = torch.float32) -> None:
        super().__init__()
        self.names = {name: name.replace(".", "_") for name in shapes}
        for name, shape in shapes.items():
            self.register_parameter(self.names[name], torch.nn.Parameter(torch.full(shape, -1.0, dtype=dtype), False))
        self.seen: list[str] = []
        self.in_use = 0

    def load_weights(self, weights: Iterator[tuple[str, Any]]) -> set[str]:
        for name, weight in weights:
            self.seen.append(name)
            parameter = getattr(self, self.names[name])
            assert parameter.shape == weight.shape, name
            parameter.copy_(weight)
            self.in_use = max(self.in_use, anamnesis._core.pool_bytes()[0])
        return {self.names[name] for name in self.seen}


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in anamnesis.open(path).items()}


def check(model: Model, expected: dict[str, Any], dtype: Any = torch.float32) -> None:
    assert sorted(model.seen) == sorted(expected)
    for name, value in expected.items():
        assert torch.equal(getattr(model, model.names[name]), value.to(dtype)), name


def source(variable: str, path: str) -> ast.Module:
    """A file of the source that a variable of the environment names."""
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"SKIPPED: {variable} names no source")
    return ast.parse((Path(folder) / path).read_text())


def signatures(tree: ast.AST) -> dict[str, tuple[list[str], list[str]]]:
    """Names of parameters and their defaults, of functions and methods."""
    found = {}
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef):
                name = f"{parent.name}.{node.name}" if isinstance(parent, ast.ClassDef) else node.name
                parameters = [one.arg for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
                found[name] = parameters, [ast.unparse(one) for one in node.args.defaults]
    return found


def fields(tree: ast.Module, name: str) -> set[str]:
    node = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
