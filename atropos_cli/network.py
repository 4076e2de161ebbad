"""How this program reaches other machines: which proxy a URL goes through, and which certificates are trusted.

The environment decides, as for other programs: http_proxy, https_proxy, all_proxy, no_proxy and their upper-case
forms; SSL_CERT_FILE and SSL_CERT_DIR. This machine itself is always reached directly.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from atropos_cli.errors import ConfigError
from atropos_cli.redaction import learn_url

if TYPE_CHECKING:
    import httpx

_PORTS = {"http": 80, "https": 443}
SERVER_KEYS = "_ATROPOS_SERVER_KEYS"
"""Set for the programs of a job: HOST:PORT=VARIABLE for each of its servers that wants a key, with blanks between."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_DIRECT: set[tuple[str, int | None]] = set()


def proxy_for(url: str) -> str | None:
    """The URL of the proxy to use for `url`, with its user and password; None: go there directly.

    Raises ConfigError for a proxy that is not an http:// or https:// URL (SOCKS is not supported).
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    variable, value = _setting(f"{parts.scheme}_proxy")
    if not value:
        variable, value = _setting("all_proxy")
    port = _port(parts)
    if not value or (host, port) in _DIRECT or _own(host) or _excepted(host, port, _setting("no_proxy")[1]):
        return None
    proxy = value if "://" in value else f"http://{value}"
    learn_url(proxy)
    place = "not a URL"
    try:
        found = urlsplit(proxy)
        place = place_of(proxy)
        usable = found.scheme in _PORTS and found.hostname and found.port != 0
    except ValueError:
        usable = False
    if usable:
        return proxy
    raise ConfigError(
        f"the proxy that {variable} names cannot be used: {place}",
        hint=f"{variable}=http://HOST:PORT, or add {host} to no_proxy; SOCKS proxies are not supported",
    )


def on_this_machine(url: str) -> bool:
    """Is the server of a URL here?"""
    return _own((urlsplit(url).hostname or "").rstrip("."))


def go_direct(url: str) -> None:
    """From now on no proxy for this server: it is one that this account started on a node of its cluster."""
    parts = urlsplit(url)
    _DIRECT.add(((parts.hostname or "").rstrip("."), _port(parts)))


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # not a number, or none of a port: whoever connects reports it
        return None


def any_proxy() -> bool:
    """Does the environment name a proxy?"""
    return any(_setting(f"{kind}_proxy")[1] for kind in ("http", "https", "all"))


def key_variable(url: str) -> str | None:
    """The variable with the key of this server, where it is one of the job that this process runs in."""
    place = urlsplit(url).netloc.rpartition("@")[2]
    for entry in os.environ.get(SERVER_KEYS, "").split():
        server, _, name = entry.rpartition("=")
        if server == place and os.environ.get(name, "").strip():
            return name
    return None


def place_of(url: str) -> str:
    """Scheme, host and port of a URL, for messages: without user, password and path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def get(
    url: str, *, timeout: float, headers: Mapping[str, str] | None = None, redirects: bool = False
) -> httpx.Response:
    """One GET for control: a hub, a server's health. timeout: seconds for each step of it.

    Raises OSError when there is no answer or the URL is none, ConfigError (proxy_for, tls_context).
    """
    import httpx

    try:
        return httpx.get(
            url,
            headers=headers,
            timeout=timeout,
            follow_redirects=redirects,
            proxy=proxy_for(url),
            verify=tls_context() if url.startswith("https:") else True,
            trust_env=False,
        )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


def tls_context() -> ssl.SSLContext:
    """Trusts SSL_CERT_FILE or SSL_CERT_DIR where they are set, else the usual authorities. Raises ConfigError."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file:
            return ssl.create_default_context(cafile=file)
        if folder:
            return ssl.create_default_context(capath=folder)
    except OSError as error:  # ssl.SSLError is one: a file without certificates
        raise ConfigError(
            f"SSL_CERT_FILE={file} cannot be read as certificates: {error.strerror or error}",
            hint="name a PEM file of certificate authorities, or unset SSL_CERT_FILE",
        ) from error
    import certifi

    return ssl.create_default_context(cafile=certifi.where())


def _setting(name: str) -> tuple[str, str]:
    """The variable that holds a setting, and its value. An empty lower-case one switches the other off."""
    for variable in (name, name.upper()):
        if (value := os.environ.get(variable)) is not None:
            return variable, value.strip()
    return name, ""


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _own(host: str) -> bool:
    """Does this name or address belong to this machine?"""
    if (address := _address(host)) is not None:
        return address.is_loopback or address.is_unspecified or _bindable(address)
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    own = socket.gethostname().lower()
    if host in (own, own.partition(".")[0]):
        return True
    if host.partition(".")[0] != own.partition(".")[0]:
        return False
    # It may be our full name, or the same name in another domain.
    try:
        found = {_address(str(info[4][0])) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return any(address is not None and _bindable(address) for address in found)


def _bindable(address: Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _excepted(host: str, port: int | None, no_proxy: str) -> bool:
    """Does no_proxy name this host? Entries: *, names and their subdomains, addresses, networks; each with a port."""
    address = _address(host)
    return any(_matches(entry.lower(), host, address, port) for entry in no_proxy.replace(",", " ").split())


def _matches(entry: str, host: str, address: Address | None, port: int | None) -> bool:
    if entry == "*":
        return True
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    else:
        return address is not None and address.version == network.version and address in network
    try:
        parts = urlsplit(entry if "://" in entry else f"//{entry}")
        name, wanted = parts.hostname or "", parts.port
    except ValueError:
        return False
    if wanted is not None and wanted != port:
        return False
    if address is not None:
        return _address(name) == address
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
