"""Content with content IDs computed by Kubo, and blocks that no tool creates."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import numpy as np


def keystream(seed: str, size: int) -> bytes:
    """Returns the start of the ChaCha20 keystream (RFC 8439) for the key sha256(seed), with nonce and counter zero."""
    blocks = -(-size // 64)
    key = np.frombuffer(hashlib.sha256(seed.encode()).digest(), "<u4")
    start = np.zeros((16, blocks), "<u4")
    start[:4] = np.frombuffer(b"expand 32-byte k", "<u4")[:, None]
    start[4:12] = key[:, None]
    start[12] = np.arange(blocks)
    words = start.copy()
    columns = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for _ in range(10):
        for a, b, c, d in columns + diagonals:
            for into, other, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                words[into] += words[other]
                mixed = words[turned] ^ words[into]
                words[turned] = (mixed << np.uint32(bits)) | (mixed >> np.uint32(32 - bits))
    return (words + start).T.astype("<u4").tobytes()[:size]


def small_tree(root: Path) -> Path:
    """Creates the directory for which Kubo computed the content IDs with ``-r``."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a" / "b" / "hello.txt").write_bytes(b"hello\n")
    (root / "z").write_bytes(b"z")
    (root / ".hidden").write_bytes(b"h")
    (root / "ünï çödé").write_bytes(b"u")
    os.symlink("a/b/hello.txt", root / "link")
    return root


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(encoded) + bytes([number])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def cid_bytes(cid: str) -> bytes:
    """Returns the binary form of a content ID in base32."""
    assert cid.startswith("b")
    text = cid[1:].upper()
    return base64.b32decode(text + "=" * (-len(text) % 8))


def directory_block(entries: list[tuple[str, str]]) -> bytes:
    """Encodes a UnixFS directory with these names and content IDs in this order. The names need not be valid."""
    links = [_field(1, cid_bytes(cid)) + _field(2, name.encode()) + b"\x18\x00" for name, cid in entries]
    return b"".join(_field(2, link) for link in links) + _field(1, b"\x08\x01")


def symlink_block(target: str) -> bytes:
    """Encodes a UnixFS symlink."""
    return _field(1, b"\x08\x04" + _field(2, target.encode()))
