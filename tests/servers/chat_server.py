"""A model behind OpenAI's chat API on this machine: the same answer to the same question, and sometimes no JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.servers.serving import Handler, Server


def answer_to(question: str) -> str:
    """Say neutral to every question but some, whose answer keeps no contract."""
    is_broken = hashlib.sha256(question.strip().encode()).digest()[0] % 3 == 0
    return "It is neutral." if is_broken else '{"disruption_label": "neutral", "confidence": 0.6}'


class ChatServer(Server):
    """Answers the last message."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.url += "/v1"
        self.asked: list[dict[str, Any]] = []  # whole requests


class _Handler(Handler):
    server: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.body())
        self.server.asked.append(body)
        reply = {"role": "assistant", "content": answer_to(body["messages"][-1]["content"])}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "usage": usage}
        whole["choices"] = [{"index": 0, "message": reply, "finish_reason": "stop"}]
        self.send(200, whole, {"Content-Type": "application/json"})
