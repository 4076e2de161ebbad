"""Films of episodes: frames as an MP4 file, and as a GIF in a message, which a page shows without loading a thing."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk import JsonDict, Message, user

_SIDE, _GIF_SIDE = 256, 160
_FRAMES = 120
_GIF_MILLISECONDS = 40


def picture(frame: Any) -> Any:
    """What render() gave, if it is a picture. Raises ValueError for all else, such as the None of many environments."""
    import numpy as np

    good = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim in (2, 3) and frame.size > 0
    if not good or (frame.ndim == 3 and frame.shape[2] not in (3, 4)):
        raise ValueError(f"render() gave no picture but {type(frame).__name__} {str(frame)[:80]}")
    return frame


def write_film(frames: Sequence[Any], path: Path) -> Path:
    """An MP4 of the frames, or a GIF where its encoder is missing; the path that it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import imageio_ffmpeg
        import numpy as np
    except ImportError:
        gif = path.with_suffix(".gif")
        gif.write_bytes(gif_of(frames))
        return gif
    shown = [np.asarray(image) for image in _images(frames, _SIDE)]
    height, width = shown[0].shape[:2]
    path = path.with_suffix(".mp4")
    writing = path.with_name(f".writing-{path.name}")
    writer = imageio_ffmpeg.write_frames(
        str(writing), (width, height), fps=25, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)
    try:
        for frame in shown:
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()
    writing.replace(path)
    return path


def gif_of(frames: Sequence[Any]) -> bytes:
    """An animated GIF of the frames, small enough for a message."""
    first, *rest = [image.quantize(64) for image in _images(frames, _GIF_SIDE)]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=rest, duration=_GIF_MILLISECONDS, loop=0, optimize=True)
    return file.getvalue()


def shown(text: str, frames: Sequence[Any]) -> Message:
    """A message of the environment with the film in it."""
    if not frames:
        return user(text)
    data = base64.b64encode(gif_of(frames)).decode()
    parts: tuple[JsonDict, ...] = (
        {"type": "text", "text": text},
        {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{data}"}},
    )
    return Message(role="user", content=parts)


def _images(frames: Sequence[Any], side: int) -> list[Any]:
    """At most _FRAMES of them, evenly taken, each with even sides of at most `side`."""
    from PIL import Image

    most = min(_FRAMES, len(frames))
    chosen = [frames[number * len(frames) // most] for number in range(most)]
    images = []
    for frame in chosen:
        image = Image.fromarray(frame).convert("RGB")
        scale = min(1.0, side / max(image.size))
        wide, high = (max(2, int(length * scale) // 2 * 2) for length in image.size)
        images.append(image.resize((wide, high)))
    return images
