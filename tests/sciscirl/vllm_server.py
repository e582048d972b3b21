"""What ``vllm serve --enable-lora`` offers of its API, on this machine, with a real model and our own sampler."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tinker
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from sciscirl.lab.models.local_completer import LocalCompleter


class VllmServer(ThreadingHTTPServer):
    """Serves a folder; adapters are loaded from folders by name. One request is computed at a time."""

    daemon_threads = True

    def __init__(self, model: str, key: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model, self.key = model, key
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.adapters: dict[str, Any] = {}
        self.loaded: list[dict[str, torch.Tensor]] = []  # the weights of all, in order
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.turn = threading.Lock()
        self.takes_adapters = self.sends_token_ids = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        completer = LocalCompleter(
            self.adapters[asked["model"]],
            self.tokenizer,
            max_tokens=asked["max_tokens"],
            seed=asked["seed"],
            temperature=asked["temperature"],
            top_p=asked["top_p"],
        )
        stop = [*asked["stop_token_ids"], *asked["stop"]]

        async def ask() -> Any:
            return await completer(tinker.ModelInput.from_ints(asked["prompt"]), stop)

        answer = asyncio.run(ask())
        choice = {
            "index": 0,
            "text": self.tokenizer.decode(answer.tokens),
            "finish_reason": answer.stop_reason,
            "logprobs": {"token_logprobs": answer.logprobs},
            "token_ids": answer.tokens if asked.get("return_token_ids") and self.sends_token_ids else None,
        }
        return {"object": "text_completion", "choices": [choice]}


class _Handler(BaseHTTPRequestHandler):
    server: VllmServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        models = {"data": [{"id": "mine", "root": self.server.model}]}
        self.answer(200, json.dumps(models), "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.key and self.headers["Authorization"] != f"Bearer {self.server.key}":
            return self.answer(401, '{"error": "Unauthorized"}', "application/json")
        with self.server.turn:
            self.server.log.append((self.path, body))
            if self.path == "/v1/completions":
                return self.answer(200, json.dumps(self.server.complete(body)), "application/json")
            if not self.server.takes_adapters:
                return self.answer(404, '{"detail": "Not Found"}', "application/json")
            name = body["lora_name"]
            if self.path == "/v1/load_lora_adapter":
                assert Path(body["lora_path"]).is_absolute()
                base = AutoModelForCausalLM.from_pretrained(self.server.model)
                self.server.loaded.append(load_file(Path(body["lora_path"], "adapter_model.safetensors")))
                self.server.adapters[name] = PeftModel.from_pretrained(base, body["lora_path"]).eval()
                return self.answer(200, f"Success: LoRA adapter '{name}' added successfully.", "text/plain")
            del self.server.adapters[name]
            return self.answer(200, f"Success: LoRA adapter '{name}' removed successfully.", "text/plain")

    def answer(self, status: int, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
