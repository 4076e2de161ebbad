"""Which proxy a URL goes through, by the variables of the environment; and which certificates are trusted."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from atropos_cli import network
from atropos_cli.errors import ConfigError
from atropos_cli.network import go_direct, key_variable, place_of, proxy_for, tls_context

PROXY = "http://proxy.test:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "http://gpu.test", None),
        ({"http_proxy": PROXY}, "http://gpu.test", PROXY),
        ({"http_proxy": PROXY}, "https://gpu.test", None),
        ({"HTTPS_PROXY": PROXY}, "https://gpu.test", PROXY),
        ({"all_proxy": PROXY}, "https://gpu.test", PROXY),
        ({"ALL_PROXY": PROXY, "http_proxy": "http://other.test"}, "http://gpu.test", "http://other.test"),
        ({"http_proxy": "", "HTTP_PROXY": PROXY}, "http://gpu.test", None),
        ({"http_proxy": "proxy.test:3128"}, "http://gpu.test", PROXY),
    ],
)
def test_the_variable_of_the_scheme_counts(
    variables: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


@pytest.mark.parametrize(
    ("entry", "url", "direct"),
    [
        ("*", "http://gpu.test", True),
        ("gpu.test", "http://gpu.test", True),
        ("GPU.test", "http://gpu.TEST:8000", True),
        ("gpu.test", "http://a.gpu.test", True),
        (".gpu.test", "http://a.gpu.test", True),
        ("*.gpu.test", "http://a.gpu.test", True),
        ("pu.test", "http://gpu.test", False),
        ("a.gpu.test", "http://gpu.test", False),
        ("gpu.test:8000", "http://gpu.test:8000", True),
        ("gpu.test:8000", "http://gpu.test:8001", False),
        ("gpu.test:443", "https://gpu.test", True),
        ("10.0.0.0/8", "http://10.20.30.40:8000", True),
        ("10.0.0.0/8", "http://11.20.30.40:8000", False),
        ("10.1.2.3", "http://10.1.2.3:8000", True),
        ("10.1.2.3:8000", "http://10.1.2.3:8000", True),
        ("10.1.2.3:8000", "http://10.1.2.3:8001", False),
        ("fd00::/8", "http://[fd00::1]:8000", True),
        ("[fd00::1]", "http://[fd00::1]:8000", True),
        ("fd00::1", "http://[fd00:0::1]", True),
        ("one.test, gpu.test", "http://gpu.test", True),
        ("one.test gpu.test", "http://gpu.test", True),
        (", ,", "http://gpu.test", False),
        ("[::1", "http://gpu.test", False),
        ("10.0.0.0/99", "http://10.0.0.1", False),
    ],
)
def test_no_proxy(entry: str, url: str, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", PROXY)
    monkeypatch.setenv("no_proxy", entry)
    assert (proxy_for(url) is None) == direct


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "api.localhost",
        "127.0.0.1",
        "127.9.9.9",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        socket.gethostname(),
        socket.gethostname().partition(".")[0].upper(),
    ],
)
def test_this_machine_is_reached_directly(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", PROXY)
    assert proxy_for(f"http://{host}:8000/v1") is None


def test_an_address_of_this_machine_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", PROXY)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; picks the address of the way out
        except OSError:
            pytest.skip("this machine has no network")
        address = probe.getsockname()[0]
    assert proxy_for(f"http://{address}:8000") is None
    assert proxy_for("http://192.0.2.1:8000") == PROXY


@pytest.mark.parametrize("value", ["socks5://u:secretword@p:1", "ftp://p", "http://", "http://p:99999", "http://["])
def test_a_proxy_of_no_use(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)
    with pytest.raises(ConfigError, match="proxy that HTTP_PROXY names cannot be used") as caught:
        proxy_for("http://gpu.test")
    assert "secretword" not in caught.value.message
    assert "no_proxy" in str(caught.value.hint)
    assert proxy_for("http://localhost") is None


def test_places_show_no_password() -> None:
    assert place_of("http://user:word@host:1/x?y") == "http://host:1"


def test_certificates_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.pem").write_text("no certificate")
    for file in (tmp_path / "missing.pem", tmp_path / "empty.pem"):
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with pytest.raises(ConfigError, match=r"SSL_CERT_FILE=.*cannot be read as certificates"):
            tls_context()
    monkeypatch.delenv("SSL_CERT_FILE")
    assert tls_context().get_ca_certs()


def test_servers_of_ones_own_are_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """This server, and not what else listens on its node."""
    monkeypatch.setenv("all_proxy", PROXY)
    monkeypatch.setattr(network, "_DIRECT", set())
    go_direct("http://node7:8000/v1")
    assert proxy_for("http://node7:8000/health") is None
    assert proxy_for("http://node7:8001/health") == PROXY
    assert proxy_for("http://node77:8000/health") == PROXY


def test_the_key_of_a_server_goes_to_that_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(network.SERVER_KEYS, "10.0.0.7:8000=MY_KEY [fd00::1]:80=OTHER")
    monkeypatch.setenv("MY_KEY", "k")
    assert key_variable("http://10.0.0.7:8000/v1") == "MY_KEY"
    assert key_variable("http://10.0.0.7:8001/v1") is None
    assert key_variable("http://10.0.0.70:8000/v1") is None
    assert key_variable("http://[fd00::1]:80/v1") is None  # not set: the server wants none
    monkeypatch.setenv("OTHER", "k")
    assert key_variable("http://[fd00::1]:80/v1") == "OTHER"
