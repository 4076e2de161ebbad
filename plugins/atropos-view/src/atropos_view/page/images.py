"""Images inside messages. A page draws only those whose data stand in the row and are what they claim to be.

An image elsewhere is shown as its address: a page that loaded it would tell its owner who looks at what.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

BYTES = 4_000_000
"""Of one image, as it is stored (base64)."""

_PIXELS = 50_000_000
_ADDRESS = 2_000
_SIGNS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff", "gif": b"GIF8", "webp": b"RIFF"}


def image_of(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """A content part as {kind: image, src | href | note}; None when it is no image.

    Dialects: OpenAI (image_url, input_image), Anthropic (source with base64), MCP (data and mimeType), Hugging Face
    (image, or url).
    """
    if "image" not in str(item.get("type")):
        return None
    found = next((item[key] for key in ("image_url", "source", "image", "url", "data") if item.get(key)), None)
    if isinstance(found, Mapping):
        kind = found.get("media_type")
        found = found.get("url") or found.get("data")
    else:
        kind = item.get("mimeType") or item.get("mime_type")
    if not isinstance(found, str):
        return {"kind": "image", "note": "image without data"}
    if not found.startswith("data:") and isinstance(kind, str):
        found = f"data:{kind};base64,{found}"
    if found.startswith("data:"):
        return _embedded(found)
    try:
        remote = urlsplit(found).scheme in ("http", "https")
    except ValueError:
        remote = False
    key = "href" if remote and len(found) <= _ADDRESS else "note"
    return {"kind": "image", key: found if key == "href" else f"image: {found[:200]}"}


def _embedded(address: str) -> dict[str, Any]:
    """An image whose data are in the address, if a browser may be trusted with it."""
    head, _, data = address.partition(",")
    kind = head.removeprefix("data:image/").removesuffix(";base64").lower()
    kind = "jpeg" if kind == "jpg" else kind
    if kind not in _SIGNS:
        return {"kind": "image", "note": f"image of a kind that is not drawn: {head[5:60]}"}
    if len(data) > BYTES:
        return {"kind": "image", "note": f"{kind} image, {len(data) * 3 // 4:,} bytes: too large to be drawn"}
    try:
        raw = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw.startswith(_SIGNS[kind]) or (kind == "webp" and raw[8:12] != b"WEBP"):
        return {"kind": "image", "note": f"not the {kind} image that it claims to be"}
    width, height = _extent(kind, raw)
    if width * height > _PIXELS:
        return {"kind": "image", "note": f"{kind} image of {width} x {height} pixels: too large to be drawn"}
    size = f", {width} x {height}" if width else ""
    src = f"data:image/{kind};base64,{base64.b64encode(raw).decode()}"
    return {"kind": "image", "src": src, "note": f"{kind} image{size}, {len(raw):,} bytes"}


def _extent(kind: str, raw: bytes) -> tuple[int, int]:
    """Width and height where the format can pack a huge picture into little data; (0, 0) for the others."""
    if kind == "png" and len(raw) >= 24:
        return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
    if kind == "gif" and len(raw) >= 10:
        return int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")
    return 0, 0
