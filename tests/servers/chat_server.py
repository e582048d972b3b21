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
    """Answers the last line of the last message, which names the question, with all that stands before it."""

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
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        # Tools may show system message and question as one: the record and the question are its last three lines.
        reply = {"role": "assistant", "content": answer_to("\n".join(text.strip().split("\n")[-3:]))}
        facts = {"id": "1", "created": 0, "model": body.get("model", "model")}
        usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        if body.get("stream"):
            choice = {"index": 0, "delta": reply, "finish_reason": "stop"}
            chunks = [{"choices": [choice]}, {"choices": [], **usage}]
            events = [json.dumps({"object": "chat.completion.chunk", **facts, **chunk}) for chunk in chunks]
            self.send(
                200,
                "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]),
                {"Content-Type": "text/event-stream"},
            )
        else:
            choices = [{"index": 0, "message": reply, "finish_reason": "stop"}]
            whole = {"object": "chat.completion", **facts, "choices": choices, **usage}
            self.send(200, whole, {"Content-Type": "application/json"})
