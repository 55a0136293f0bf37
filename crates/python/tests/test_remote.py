"""Checkpoints at URLs, from a server of this process."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


class RangeHandler(BaseHTTPRequestHandler):
    """Ranges of the files in ``FIXTURES``."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        file = FIXTURES / self.path.lstrip("/")
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not file.is_file() or wanted is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = file.read_bytes()
        first, last = wanted.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(len(data), int(last) + 1) if first and last else len(data)
        self.send_response(206)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("ETag", f'"{len(data)}"')
        self.end_headers()
        self.wfile.write(data[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), RangeHandler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()


@pytest.mark.parametrize("file", ["safetensors/all_dtypes.safetensors", "model/scribe-Q8_0.gguf", "pth/tied.pth"])
def test_tensors_are_those_of_the_file(server: str, file: str) -> None:
    expected = anamnesis.load(FIXTURES / file, "np")
    checkpoint = anamnesis.open(f"{server}/{file}")
    assert checkpoint.path == f"{server}/{file}"
    found = checkpoint.load("np")
    assert list(found) == list(expected)
    assert all(found[name].tobytes() == expected[name].tobytes() for name in found)
    name = next(iter(checkpoint))
    assert checkpoint[name].numpy(slice(0, 1)).tobytes() == expected[name][:1].tobytes()


def test_shards_are_found_by_their_index(server: str) -> None:
    index = "safetensors/sharded/model.safetensors.index.json"
    assert list(anamnesis.open(f"{server}/{index}")) == list(anamnesis.open(FIXTURES / index))


def test_what_a_server_lacks_is_an_error_of_the_system(server: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        anamnesis.open(f"{server}/missing.safetensors")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="SKIPPED: this system has no fork")
def test_a_child_has_connections_of_its_own(server: str) -> None:
    path = "safetensors/all_dtypes.safetensors"
    expected = anamnesis.load(f"{server}/{path}", "np")
    child = os.fork()
    if child == 0:
        try:
            found = anamnesis.load(f"{server}/{path}", "np")
            os._exit(0 if all(np.array_equal(found[n].view("u1"), expected[n].view("u1")) for n in found) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
