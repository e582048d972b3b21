"""Google Cloud Storage, Azure Blob Storage and the Hugging Face hub on this machine, as far as files go in and out.

Written after their documentation, not after Polars or obstore:
https://cloud.google.com/storage/docs/xml-api/overview,
https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api and https://huggingface.co/docs/hub/api.

Google and Azure give objects by bucket and name, with ranges. Google wants a token that is signed with the key of the
service account. Azure wants the request signed with the key of the account. Both take whole objects, also on a
condition. They also take parts, and a last request puts these together.

The hub gives files of a dataset. It redirects to another host, which takes the signed address and refuses a token. The
hub's address is fixed, so this server is asked as a proxy, and has a certificate for that address.
"""

from __future__ import annotations

import base64
import datetime
import email.utils
import hashlib
import hmac
import json
import os
import re
import ssl
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
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
AZURE_KEY = base64.b64encode(b"a key that is not to be shown").decode()
ACCOUNT = "reader@science.example"


class StoreServer(ThreadingHTTPServer):
    """Serves the files in ``objects``, by ``bucket/name`` or ``owner/dataset/name``.

    Attributes:
        account: a service account, as the file that Google gives out holds it, for this server.
        certificate: a file with the certificate of the hub.
        refused: what was asked for without the right token, or with one that belongs elsewhere.
        stated: headers of each object that was uploaded.
    """

    daemon_threads = True

    def __init__(self, home: Path, objects: dict[str, Path], bucket: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects, self.refused, self.bucket = objects, list[str](), bucket
        self.stated, self.parts = dict[str, dict[str, str]](), dict[str, dict[str, bytes]]()
        self.numbers, self._home = count(1), home
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

    def keep(self, key: str, data: bytes, headers: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
        """Make an object, with what is stated about it in ``headers``; return what it is answered with."""
        number = str(next(self.numbers))
        self.stated[key] = {name: value for name, value in headers if re.match("x-(goog|ms)-meta-", name)}
        self.stated[key] |= {"ETag": f'"{number}"', "x-goog-generation": number}
        self.objects[key] = self._home / f"object-{number}"
        self.objects[key].write_bytes(data)
        return self.stated[key]

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
            self._refuse(403 if path.startswith(AZURE) else 401)
        elif "prefix" in (query := dict(parse_qsl(address.query))):
            self._list(path.rpartition("/")[2], query)
        elif (path := path.removeprefix(AZURE)) in self.server.objects:
            self._send_object(path)
        else:
            self._fail(404, "NoSuchKey")

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data, address = self.rfile.read(length), urlsplit(self.path)
        query, path = dict(parse_qsl(address.query, keep_blank_values=True)), unquote(address.path)[1:]
        key, is_azure = path.removeprefix(AZURE), path.startswith(AZURE)
        if len(data) < length:
            self.close_connection = True
        elif not self._is_signed(self.headers.get("Authorization", "").removeprefix("Bearer ")):
            self._refuse(403)
        elif key.partition("/")[0] != self.server.bucket:
            self._fail(404, "ContainerNotFound" if is_azure else "NoSuchBucket")
        elif is_azure:
            self._write_as_azure(key, query, data)
        else:
            self._write_as_google(key, query, data)

    do_POST = do_DELETE = do_PUT

    def _write_as_google(self, key: str, query: dict[str, str], data: bytes) -> None:
        """Take an object, or a part of one: put-object-upload and multipart-uploads of the XML API."""
        server, upload = self.server, query.get("uploadId")
        live = server.stated[key]["x-goog-generation"] if key in server.objects else "0"
        if "uploads" in query:
            upload = f"upload-{next(server.numbers)}"
            server.parts[upload] = {}
            server.stated[upload] = dict(self._stated())
            root = "InitiateMultipartUploadResult"
            self._answer(200, f"<{root}><UploadId>{upload}</UploadId></{root}>")
        elif upload and upload not in server.parts:
            self._fail(404, "NoSuchUpload")
        elif upload and self.command == "DELETE":
            del server.parts[upload]
            self._answer(204)
        elif upload and self.command == "PUT":
            server.parts[upload][query["partNumber"]] = data
            self._answer(200, headers={"ETag": f'"{_digest(data)}"'})
        elif upload:
            named = re.findall(r'<ETag>"(\w+)"</ETag><PartNumber>(\d+)<', data.decode())
            parts = server.parts[upload]
            if not named or any(_digest(parts.get(number, b"")) != tag for tag, number in named):
                return self._fail(400, "InvalidPart")
            whole = b"".join(parts[number] for _, number in named)
            tag = server.keep(key, whole, server.stated.pop(upload).items())["ETag"]
            del server.parts[upload]
            root = "CompleteMultipartUploadResult"
            self._answer(200, f"<{root}><ETag>{tag}</ETag></{root}>")
        elif self.headers.get("x-goog-if-generation-match", live) != live:
            self._fail(412, "PreconditionFailed")
        else:
            self._answer(200, headers=server.keep(key, data, self._stated()))
        return None

    def _write_as_azure(self, key: str, query: dict[str, str], data: bytes) -> None:
        """Take a blob, or a block of one: put-blob, put-block and put-block-list."""
        server, live = self.server, self.server.stated.get(key, {}).get("ETag")
        if query.get("comp") == "block":
            server.parts.setdefault(key, {})[query["blockid"]] = data
            return self._answer(201)
        if query.get("comp") == "blocklist":
            blocks, named = server.parts.get(key, {}), re.findall("<Uncommitted>(.+?)</Uncommitted>", data.decode())
            if not blocks.keys() >= set(named):
                return self._fail(400, "InvalidBlockList")
            data = b"".join(blocks[name] for name in named)
        elif self.headers.get("If-None-Match") == "*" and live:
            return self._fail(409, "BlobAlreadyExists")
        elif self.headers.get("If-Match", live) != live:
            return self._fail(412, "ConditionNotMet")
        server.parts.pop(key, None)
        return self._answer(201, headers=server.keep(key, data, self._stated()))

    def _stated(self) -> Iterable[tuple[str, str]]:
        return ((name.lower(), value) for name, value in self.headers.items())

    def _is_signed(self, token: str) -> bool:
        if token.startswith("SharedKey"):
            return hmac.compare_digest(token, f"SharedKey {AZURE[:-1]}:{self._sign_as_azure()}")
        signed, _, signature = token.rpartition(".")
        try:
            self.server.public.verify(_decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):  # of something else than a token
            return False
        return json.loads(_decode(signed.partition(".")[2]))["iss"] == ACCOUNT

    def _sign_as_azure(self) -> str:
        """Sign the request by the account's key, as authorize-with-shared-key says."""
        address, given = urlsplit(self.path), dict(self._stated())
        names = [f"content-{name}" for name in ("encoding", "language", "length", "md5", "type")]
        names += ["date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"]
        lines = [self.command, *(given.get(name, "") for name in names)]
        lines[3] = lines[3].removeprefix("0")  # no length
        lines += [f"{name}:{given[name]}" for name in sorted(given) if name.startswith("x-ms-")]
        lines.append(f"/{AZURE[:-1]}{address.path}")
        lines += [f"{name}:{value}" for name, value in sorted(parse_qsl(address.query, keep_blank_values=True))]
        signed = hmac.digest(base64.b64decode(AZURE_KEY), "\n".join(lines).encode(), "sha256")
        return base64.b64encode(signed).decode()

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        """List objects as S3 and Google do, or as Azure does, two at a time; Google: list-objects-v2 in XML."""
        prefix, is_azure = query["prefix"], "comp" in query
        keys = sorted(key.partition("/")[2] for key in self.server.objects if key.startswith(f"{bucket}/{prefix}"))
        if "delimiter" in query:
            keys = [key for key in keys if "/" not in key[len(prefix) :]]
        start = query.get("marker" if is_azure else "continuation-token", "")
        page = [key for key in keys if key >= start]
        page, rest = page[:2], page[2:]
        found = [(key, self.server.objects[f"{bucket}/{key}"].stat(), self._tag(f"{bucket}/{key}")) for key in page]
        if is_azure:
            form = (
                "<Blob><Name>{0}</Name><Properties><Last-Modified>{2}</Last-Modified><Etag>{3}</Etag>"
                "<Content-Type>application/octet-stream</Content-Type>"
                "<Content-Length>{1}</Content-Length></Properties></Blob>"
            )
            blobs = "".join(form.format(key, state.st_size, _date(state), tag) for key, state, tag in found)
            more = f"<NextMarker>{rest[0]}</NextMarker>" if rest else ""
            text = f"<EnumerationResults><Blobs>{blobs}</Blobs>{more}</EnumerationResults>"
        else:
            form = '<Contents><Key>{}</Key><Size>{}</Size><ETag>"{}"</ETag><LastModified>{}</LastModified></Contents>'
            times = [datetime.datetime.fromtimestamp(int(state.st_mtime), datetime.UTC) for _, state, _ in found]
            entries = zip(found, times, strict=True)
            contents = "".join(
                form.format(key, state.st_size, tag, time.isoformat()) for (key, state, tag), time in entries
            )
            more = f"<NextContinuationToken>{rest[0]}</NextContinuationToken>" if rest else ""
            text = f"<ListBucketResult>{contents}{more}</ListBucketResult>"
        self._answer(200, text, {"Content-Type": "application/xml"})

    def _tag(self, key: str) -> str:
        return self.server.stated.get(key, {}).get("ETag", "1").strip('"')

    def _send_object(self, key: str) -> None:
        path = self.server.objects[key]
        data, status = path.read_bytes(), 200
        headers = {
            "ETag": f'"{self._tag(key)}"',
            "Last-Modified": _date(path.stat()),
            **self.server.stated.get(key, {}),
        }
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            first, last = wanted.groups()
            start = int(first) if first else max(len(data) - int(last), 0)
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, status = data[start:end], 206
        self._answer(status, data, headers)

    def _refuse(self, status: int) -> None:
        self.server.refused.append(self.path)
        self._answer(status)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>")

    def _answer(self, status: int, body: bytes | str = b"", headers: dict[str, str] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _date(state: os.stat_result) -> str:
    return email.utils.formatdate(state.st_mtime, usegmt=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
