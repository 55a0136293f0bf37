"""Serves one file over HTTP, or HTTPS with the certificate of the tests, on loopback, until it is killed: server.py FILE [http|https].

The first line of its output is the URL.
"""

import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILE = Path(sys.argv[1])
TLS = Path(__file__).parents[2] / "crates/cli/tests/it/tls"


class RangeHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        content = FILE.read_bytes()
        if self.path != f"/{FILE.name}":
            return self.send_error(404)
        wanted = self.headers.get("Range")
        begin, end = 0, len(content)
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or end) + 1, end)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[begin:end])

    def log_message(self, *_: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that has read enough closes the connection, which is no failure."""


scheme = sys.argv[2]
server = QuietServer(("127.0.0.1", 0), RangeHandler)
if scheme == "https":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(f"{scheme}://localhost:{server.server_port}/{FILE.name}", flush=True)
server.serve_forever()
