"""Messages between the server and its child processes: JSON and bytes, each after its length."""

import json
import struct
from typing import IO, Any

Answer = tuple[dict[str, Any], bytes]  # of a worker: what JSON holds, and bytes

HEADER = struct.Struct("<II")  # lengths of the JSON and of the bytes
MAX_BYTES = 512 << 20  # a raw frame of the largest admitted size is below


def packed(content: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a message as bytes."""
    text = json.dumps(content).encode()
    return HEADER.pack(len(text), len(body)) + text + body


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Read a message; None at the end of the stream."""
    head = _exactly(stream, HEADER.size)
    if head is None:
        return None
    text_length, body_length = HEADER.unpack(head)
    text, body = _exactly(stream, text_length), _exactly(stream, body_length)
    if text is None or body is None:
        return None
    content: dict[str, Any] = json.loads(text)
    return content, body


def _exactly(stream: IO[bytes], length: int) -> bytes | None:
    data = stream.read(length)
    return data if len(data) == length else None
