"""As much of a Tinker server as is asked before a run and after it: health, settings, models, and a session."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers.serving import serving

KEY = "tml-right"


@contextmanager
def serve_models(models: list[dict[str, object]], *, goodbye: int = 200) -> Generator[str]:
    """Answer on a free port of this machine; only KEY is let in, and a goodbye is answered with that status."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.endswith("/healthz"):
                status, body = 200, {"status": "ok"}
            elif self.headers.get("X-API-Key") != KEY:
                status, body = 401, {"detail": "Invalid key"}
            elif self.path.endswith("/get_server_capabilities"):
                status, body = 200, {"supported_models": models}
            elif self.path.endswith("/create_session"):
                status, body = 200, {"session_id": "session"}
            elif self.path.endswith("/finish"):
                status, body = goodbye, {}
            else:
                status, body = 200, {}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"
