"""Google Cloud Storage and the Hugging Face hub on this machine, as far as a reader of files asks them.

Written after their documentation, https://cloud.google.com/storage/docs/xml-api/get-object-download and
https://huggingface.co/docs/hub/api, not after Polars: objects by bucket and name, with ranges, for whoever has signed a
token with the key of the service account; files of a dataset by a redirection to another host, which takes the signed
address and refuses a token. The hub's address is fixed, so it is reached as a proxy, under a certificate of its own.
"""

from __future__ import annotations

import base64
import datetime
import email.utils
import json
import os
import re
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

HUB, CDN = "huggingface.co", "cdn.hub.example"
HUB_TOKEN = "hf_token_of_a_test"
OPEN_BUCKET = "open/"  # for everybody, without a token
AZURE = "account/"  # before the container, as of an emulator of Azure
ACCOUNT = "reader@science.example"


class StoreServer(ThreadingHTTPServer):
    """Serves the files in ``objects``, by ``bucket/name`` or ``owner/dataset/name``.

    Attributes:
        account: a service account, as the file that Google gives out holds it, for this server.
        certificate: a file with the certificate of the hub.
        refused: what was asked for without the right token, or with one that belongs elsewhere.
    """

    daemon_threads = True

    def __init__(self, home: Path, objects: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects, self.refused = objects, list[str]()
        self.url = f"http://127.0.0.1:{self.server_port}"
        key = rsa.generate_private_key(65_537, 2_048)
        self.public = key.public_key()
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        pem = key.private_bytes(*plain)
        self.account = {
            "type": "service_account",
            "client_email": ACCOUNT,
            "private_key": pem.decode(),
            "private_key_id": "1",
            "gcs_base_url": self.url,
        }
        self.certificate = home / "certificate.pem"
        self.certificate.write_bytes(_certificate(key).public_bytes(serialization.Encoding.PEM))
        (home / "key.pem").write_bytes(pem)
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(self.certificate, home / "key.pem")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a client drops."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StoreServer

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        with self.server.tls.wrap_socket(self.connection, server_side=True) as inside:
            self.server.finish_request(inside, self.client_address)
        self.close_connection = True

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        address, token = urlsplit(self.path), self.headers.get("Authorization", "").removeprefix("Bearer ")
        path, host = unquote(address.path)[1:], self.headers["Host"]
        if host == HUB:
            dataset, _, name = path.replace("/tree/", "/resolve/").partition("/resolve/main/")
            key = f"{dataset.removeprefix('datasets/')}/{name}"
            if token != HUB_TOKEN:
                self._refuse(401)
            elif key in self.server.objects:
                self._answer(302, b"", {"Location": f"https://{CDN}/{quote(key)}?signature=1"})
            else:  # of a file and of a folder; a folder that is there is never asked for
                reason = json.dumps({"error": f'{name} does not exist on "main"'}).encode()
                self._answer(404, reason, {"X-Error-Code": "EntryNotFound"})
        elif host == CDN and (token or address.query != "signature=1"):
            self._refuse(400)
        elif host != CDN and not (OPEN_BUCKET in f"{path}/" and not token) and not self._is_signed(token):
            self._refuse(401)
        elif "prefix" in (query := dict(parse_qsl(address.query))):
            self._list(path.rpartition("/")[2], query)
        elif (path := path.removeprefix(AZURE)) in self.server.objects:
            self._send_object(self.server.objects[path])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})

    def _is_signed(self, token: str) -> bool:
        signed, _, signature = token.rpartition(".")
        try:
            self.server.public.verify(_decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):  # of something else than a token
            return False
        return json.loads(_decode(signed.partition(".")[2]))["iss"] == ACCOUNT

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        """List objects as S3 and Google do, or as Azure does, two at a time; Google: list-objects-v2 in XML."""
        prefix, is_azure = query["prefix"], "comp" in query
        keys = sorted(key.partition("/")[2] for key in self.server.objects if key.startswith(f"{bucket}/{prefix}"))
        if "delimiter" in query:
            keys = [key for key in keys if "/" not in key[len(prefix) :]]
        start = query.get("marker" if is_azure else "continuation-token", "")
        page = [key for key in keys if key >= start]
        page, rest = page[:2], page[2:]
        found = [(key, self.server.objects[f"{bucket}/{key}"].stat()) for key in page]
        if is_azure:
            form = (
                "<Blob><Name>{0}</Name><Properties><Last-Modified>{2}</Last-Modified><Etag>1</Etag>"
                "<Content-Type>application/octet-stream</Content-Type>"
                "<Content-Length>{1}</Content-Length></Properties></Blob>"
            )
            blobs = "".join(form.format(key, state.st_size, _date(state)) for key, state in found)
            more = f"<NextMarker>{rest[0]}</NextMarker>" if rest else ""
            text = f"<EnumerationResults><Blobs>{blobs}</Blobs>{more}</EnumerationResults>"
        else:
            form = '<Contents><Key>{0}</Key><Size>{1}</Size><ETag>"1"</ETag><LastModified>{2}</LastModified></Contents>'
            times = [datetime.datetime.fromtimestamp(int(state.st_mtime), datetime.UTC) for _, state in found]
            entries = zip(found, times, strict=True)
            contents = "".join(form.format(key, state.st_size, time.isoformat()) for (key, state), time in entries)
            more = f"<NextContinuationToken>{rest[0]}</NextContinuationToken>" if rest else ""
            text = f"<ListBucketResult>{contents}{more}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _send_object(self, path: Path) -> None:
        data, status = path.read_bytes(), 200
        headers = {"ETag": '"1"', "Last-Modified": _date(path.stat())}
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            first, last = wanted.groups()
            start = int(first) if first else max(len(data) - int(last), 0)
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, status = data[start:end], 206
        self._answer(status, data, headers)

    def _refuse(self, status: int) -> None:
        self.server.refused.append(self.path)
        self._answer(status, b"", {})

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _date(state: os.stat_result) -> str:
    return email.utils.formatdate(state.st_mtime, usegmt=True)


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HUB)])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HUB), x509.DNSName(CDN)]), critical=False)
        .sign(key, hashes.SHA256())
    )
