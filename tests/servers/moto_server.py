"""A real S3 server on this machine, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "not-to-be-shown"}

#: Says on which port it listens: one that was found free before might no longer be.
_SERVER = """
import threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


@contextmanager
def s3_server(*buckets: str) -> Generator[tuple[str, Any]]:
    """Serve buckets until the end of the block; give the address, and a client that may write."""
    import boto3

    command = [sys.executable, "-c", _SERVER]
    env = os.environ | {"S3_UPLOAD_PART_MIN_SIZE": "1"}
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **KEYS)
        for bucket in buckets:
            client.create_bucket(Bucket=bucket)
        yield url, client
    finally:
        server.kill()
        server.communicate()
