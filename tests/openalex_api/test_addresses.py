"""No key leaves this machine unencrypted: which addresses are refused, before anything is sent."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.cli.main import main
from sciscidata.errors import ConfigError
from sciscidata.openalex_api.client import ApiConfig
from sciscidata.remote.object_store import check_store
from sciscidata.remote.urls import check_address, may_carry_key, show_address
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from tests.openalex_api.test_client import KEY

HERE = (
    "http://localhost", "http://LOCALHOST:8000/", "HTTP://127.0.0.1:1", "http://127.255.0.9/a@b",
    "http://[::1]:8000/v1",
)  # fmt: skip
ELSEWHERE = (
    "http://api.openalex.org", "http://10.0.0.1:8000", "http://128.0.0.1", "http://127.0.0.1.example.com",
    "http://localhost.example.com", "http://localhost.:8000", "http://127.0.0.1@evil.com",
    "http://127.0.0.1\\@evil.com", "http://127.0.0.1%2eevil.com", "http://127.0.0.1\n.evil.com", "http://127.0.0.01",
    "http://2130706433", "http://[::ffff:127.0.0.1]", "http://[::1%25lo]", "http://１２７.0.0.1", "http:/127.0.0.1",
    " http://127.0.0.1", "127.0.0.1:8000", "ftp://127.0.0.1", "",
)  # fmt: skip


@pytest.mark.parametrize("url", HERE)
def test_this_machine_is_known_by_its_few_spellings(url):
    assert may_carry_key(url)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_what_is_not_surely_this_machine_is_refused(url):
    assert not may_carry_key(url)
    with pytest.raises(ConfigError, match=r"unencrypted\. A key needs https://, or this machine"):
        check_address(url, name="base_url", key="the key")


@pytest.mark.parametrize("url", ["https://a.org", "HTTPS://a.org:8443/x@y", "https://127.0.0.1"])
def test_https_carries_a_key_anywhere(url):
    assert may_carry_key(url)


@pytest.mark.parametrize("url", ["https://user:word@a.org", "https://a.org\\@b.org", "https://@a.org", "https:a.org"])
def test_an_address_with_a_password_in_it_or_no_host_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        check_address(url, name="base_url", key="the key")
    assert "word" not in str(caught.value)


@given(st.text(max_size=30), st.sampled_from(["http://", "HTTP://", "http://localhost", "http://127.0.0.1"]))
def test_what_is_let_through_unencrypted_has_a_host_on_this_machine_for_every_parser(rest, start):
    import ipaddress
    from urllib.parse import urlsplit

    import httpx

    url = start + rest
    if may_carry_key(url):
        for host in (urlsplit(url).hostname, httpx.URL(url).host if url.isprintable() else "localhost"):
            assert host == "localhost" or ipaddress.ip_address(host).is_loopback


@given(st.text(alphabet="abcXYZ019-_", min_size=12, max_size=30))
def test_a_message_never_holds_the_key(key):
    for url in (f"http://{key}:{key}@a.org/{key}?k={key}#{key}", f"http://a.org?{key}", key, f"http://{key}.org"):
        assert key.lower() not in show_address(url, key).lower()


def test_the_key_of_a_file_or_the_environment_counts_as_one_of_a_flag(monkeypatch):
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    with pytest.raises(ConfigError, match=r"base_url is http://a\.org: the API key"):
        ApiConfig.from_environment(base_url="http://a.org/v1")
    monkeypatch.delenv("OPENALEX_API_KEY")
    assert ApiConfig(base_url="http://a.org").server == "http://a.org"  # no key, nothing to hide


def test_the_command_refuses_in_one_line_and_says_no_key(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    words = ["build", "--base-url", "http://openalex.example", "--out", str(tmp_path / "out")]
    assert main(words) != 0
    told = capsys.readouterr().err
    assert "--base-url is http://openalex.example: the API key would be sent there unencrypted" in told
    assert "Traceback" not in told
    assert KEY not in told


@pytest.fixture
def listener():
    """A port of this machine that notes whether anything connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def is_asked() -> bool:
            try:
                server.accept()[0].close()
            except TimeoutError:
                return False
            return True

        yield server.getsockname()[1], is_asked


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
def test_a_store_is_not_asked_unencrypted_with_credentials(name, listener, monkeypatch):
    port, is_asked = listener
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv(name, f"http://0.0.0.0:{port}")
    with pytest.raises(ConfigError, match=rf"^{name} is http://0\.0\.0\.0:{port}: the credentials") as caught:
        scan_sciscinet(SciSciNetConfig(folder="s3://science/v2"))
    assert KEY not in str(caught.value)
    assert not is_asked()


@pytest.mark.parametrize("name", ["aws_endpoint_url", "endpoint_url", "AWS_ENDPOINT_URL"])
def test_options_of_a_store_go_over_the_environment(name, listener, monkeypatch):
    port, is_asked = listener
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    options = {name: f"http://user:word@127.0.0.1:{port}", "aws_allow_http": "true"}
    with pytest.raises(ConfigError, match=rf"^storage_options\['{name.lower()}'\] is http://\*\*\*@127") as caught:
        scan_sciscinet(SciSciNetConfig(folder="s3://science/v2", storage_options=options))
    assert "word" not in str(caught.value)
    assert not is_asked()


def test_a_url_of_tables_with_a_password_in_it_is_refused():
    with pytest.raises(ConfigError, match=r"is https://\*\*\*@a\.org, needs a URL without a user name") as caught:
        scan_sciscinet(SciSciNetConfig(folder="https://user:word@a.org/v2"))
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    ("folder", "option"),
    [
        ("az://b/x", "azure_endpoint"),
        ("adl://b/x", "azure_authority_host"),
        ("s3a://b/x", "aws_endpoint_url_sts"),
        ("gs://b/x", "base_url"),
        ("hf://b/x", "endpoint_url"),
    ],
)
def test_no_option_of_any_store_sends_credentials_unencrypted(folder, option):
    with pytest.raises(
        ConfigError, match=rf"^storage_options\['{option.lower()}'\] is http://10\.0\.0\.1: the credentials"
    ):
        check_store(folder, {option: "http://10.0.0.1"}, name="SciSciNetConfig.folder")
    for url in ("https://store.example", "http://127.0.0.1:10000"):
        check_store(folder, {option: url}, name="SciSciNetConfig.folder")


def test_variables_of_a_store_concern_that_store_alone(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://10.0.0.1")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://169.254.169.254")  # hands out credentials, and is sent none
    for folder in ("s3://b/x", "gs://b/x", "https://a.org/x", "tables"):
        check_store(folder, {}, name="SciSciNetConfig.folder")
    with pytest.raises(ConfigError, match=r"^AZURE_STORAGE_ENDPOINT is http://10\.0\.0\.1: "):
        check_store("az://b/x", {}, name="SciSciNetConfig.folder")
    check_store("az://b/x", {"azure_skip_signature": "true"}, name="SciSciNetConfig.folder")


def test_a_folder_of_the_web_is_not_asked_unencrypted_with_a_token():
    for options in ({"token": KEY}, {"Authorization": KEY}):
        with pytest.raises(ConfigError, match=r"^SciSciNetConfig\.folder is http://10\.0\.0\.1: the") as caught:
            check_store("http://10.0.0.1/x", options, name="SciSciNetConfig.folder")
        assert KEY not in str(caught.value)
        for folder in ("https://a.org/x", "http://localhost:8000/x"):
            check_store(folder, options, name="SciSciNetConfig.folder")
    check_store("http://10.0.0.1/x", {"timeout": "30s"}, name="SciSciNetConfig.folder")
