"""Reading the header of GGUF files, good ones and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from atropos_local.gguf_header import NotGGUF, read_header


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def sample() -> bytes:
    pairs = [
        text("general.name") + struct.pack("<I", 8) + text("tiny"),
        text("a.count") + struct.pack("<II", 4, 7),
        text("a.rate") + struct.pack("<If", 6, 0.5),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("one") + text("two"),
        text("types") + struct.pack("<IIQ", 9, 5, 3) + struct.pack("<3i", 1, 2, 3),
        text("a.flag") + struct.pack("<I?", 7, True),
    ]
    tensors = [
        text("w") + struct.pack("<IQQIQ", 2, 3, 5, 0, 0),
        text("b") + struct.pack("<IQIQ", 1, 4, 0, 64),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)


def test_metadata_and_size(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(sample() + b"\0" * 100)
    header = read_header(path)
    assert header.metadata == {"general.name": "tiny", "a.count": 7, "a.rate": 0.5, "a.flag": True}
    assert header.parameters == 3 * 5 + 4


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path, data = tmp_path / "a.gguf", sample()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(NotGGUF):
            read_header(path)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 a zip file",
        b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 50),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 60),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(NotGGUF):
        read_header(path)
