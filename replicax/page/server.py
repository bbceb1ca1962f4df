"""A server of one page that only this machine can reach."""

import contextlib
import errno
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from replicax.page.render import PLOTLY, plotly_script

HOST = "127.0.0.1"


def open_server(
    page: Callable[[], str], version: Callable[[], str], port: int
) -> ThreadingHTTPServer:
    """Return a server that shows the result of `page`; the script of the page polls the
    `version`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not _is_local(self.headers.get("Host", "")):  # a page elsewhere that asks for ours
                self._send(403, "text/plain", "Open this page by its own address.")
            elif self.path == "/":
                self._send(200, "text/html", page())
            elif self.path == "/version":
                self._send(200, "text/plain", version())
            elif self.path == f"/{PLOTLY}":
                self._send(200, "text/javascript", plotly_script(), "max-age=86400")
            else:
                self._send(404, "text/plain", "There is nothing here.")

        def _send(self, code: int, kind: str, text: str, cache: str = "no-store") -> None:
            content = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", cache)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reader left
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ValueError(f"port is {port}, which is in use; write port=0 for a free one.") from None
    server.daemon_threads = True
    return server


def address(server: ThreadingHTTPServer) -> str:
    """Return the address of the page."""
    return f"http://{HOST}:{server.server_address[1]}/"


def _is_local(host: str) -> bool:
    return host.rpartition(":")[0] in (HOST, "localhost")
