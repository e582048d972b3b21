"""As much of a Tinker server as is asked before a run and after it: health, settings, models, and a session."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tests.servers.serving import Handler, Server

KEY = "tml-right"


@contextmanager
def serve_models(models: list[dict[str, object]], *, goodbye: int = 200) -> Generator[str]:
    """Answer on a free port of this machine; only KEY is let in, and a goodbye is answered with that status."""

    class Models(Handler):
        def answer(self) -> None:
            self.body()
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
            self.send(status, body, {"Content-Type": "application/json"})

        do_GET = do_POST = answer

    with Server(Models) as server:
        yield server.url
