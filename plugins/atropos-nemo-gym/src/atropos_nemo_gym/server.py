"""Requests to a resource server: a session of its own, a cookie jar, for each episode."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError, ConfigError, JsonDict, clean_text
from atropos_cli.sdk.backends import proxy_for

if TYPE_CHECKING:
    import aiohttp

_LONGEST_TEXT = 500
_CHUNK = 1 << 16
_MOST_BYTES = 64 << 20


class NemoGymError(AtroposError):
    """The server could not answer a request."""

    def __init__(self, message: str) -> None:
        super().__init__(clean_text(message)[:_LONGEST_TEXT])


class Session:
    """What one episode asks: the server knows it by the cookie that its first answer set."""

    def __init__(self, http: aiohttp.ClientSession, url: str, timeout_s: float) -> None:
        self._http = http
        self._url = url
        self._timeout_s = timeout_s

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        """(status, text) of an answer. Raises NemoGymError where there was none."""
        import aiohttp

        try:
            async with asyncio.timeout(self._timeout_s):
                address = f"{self._url}/{path}"
                async with self._http.post(address, json=body, proxy=proxy_for(self._url)) as answer:
                    data = await _limited(answer.content, f"/{path} of {self._url}")
                    return answer.status, clean_text(data.decode(errors="replace"))
        except TimeoutError:
            raise NemoGymError(f"the server did not answer /{path} within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise NemoGymError(f"/{path} of {self._url}: {error or type(error).__name__}") from error

    async def ask(self, path: str, data: JsonDict) -> JsonDict:
        """A JSON object. Raises NemoGymError for an answer that is none, or an error."""
        status, text = await self.post(path, data)
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if status != 200 or not isinstance(said, dict):
            raise NemoGymError(f"/{path} of {self._url} answered {status}: {text}")
        return said

    async def close(self) -> None:
        await self._http.close()


class Server:
    """A resource server, and what connects all sessions to it."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._connector: aiohttp.TCPConnector | None = None

    async def open(self) -> None:
        """Raises ConfigError where no such server answers."""
        import aiohttp

        # Each request has a connection of its own. Where a tool raises, uvicorn answers 500 and closes the connection
        # without saying so; the next request on it, of this session or of another one, would be lost.
        self._connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = self.session()
        try:
            # Every resource server describes its routes here, and asking for them changes nothing.
            async with asyncio.timeout(self._timeout_s):
                address = f"{self.url}/openapi.json"
                async with session._http.get(address, proxy=proxy_for(self.url)) as answer:
                    answer.raise_for_status()
                    described = json.loads(await _limited(answer.content, "/openapi.json"))
            routes = described.get("paths") if isinstance(described, dict) else None
            if not isinstance(routes, dict) or "/verify" not in routes:
                raise ValueError("it has no /verify")
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError, NemoGymError) as error:
            await self.close()
            why = clean_text(str(error) or type(error).__name__)[:_LONGEST_TEXT]
            raise ConfigError(
                f"no resource server of NeMo Gym at {self.url}: {why}",
                hint="start it, such as gym env start --resources-server NAME, then gen nemo-gym:http://HOST:PORT",
            ) from error
        finally:
            await session.close()

    def session(self) -> Session:
        """A session without cookies."""
        import aiohttp

        # Servers are named by addresses as well, which cookie jars distrust by default.
        jar = aiohttp.CookieJar(unsafe=True)
        http = aiohttp.ClientSession(connector=self._connector, connector_owner=False, cookie_jar=jar)
        return Session(http, self.url, self._timeout_s)

    async def close(self) -> None:
        if self._connector is not None:
            await self._connector.close()
            self._connector = None


async def _limited(stream: aiohttp.StreamReader, what: str) -> bytes:
    """All of an answer. Raises NemoGymError for one that would fill the memory."""
    data = bytearray()
    async for chunk in stream.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > _MOST_BYTES:
            raise NemoGymError(f"{what} answered more than {_MOST_BYTES} bytes")
    return bytes(data)
