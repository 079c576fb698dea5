"""How benchmarks/fuzz.py changes files: at random, and with the structure of their format in mind.

Every function takes the generator that decides, so that an input is a function of its seed and number alone.
"""

import copy
import csv
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

PNG = b"\x89PNG\r\n\x1a\n"
_SIZES = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_BLOCKS = (1, 4, 16, 256, 1024)


# Bytes


def flipped(chance: Random, content: bytes, times: int = 1) -> bytes:
    """The content with single bits turned over."""
    changed = bytearray(content)
    for _ in range(times):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _flipped_often(chance: Random, content: bytes) -> bytes:
    return flipped(chance, content, chance.choice((2, 3, 8, 64)))


def _head_flipped(chance: Random, content: bytes) -> bytes:
    end = min(len(content), 512)
    return flipped(chance, content[:end]) + content[end:]


def cut(chance: Random, content: bytes) -> bytes:
    """The content without its end."""
    return content[: chance.randrange(len(content))]


def _zeroed(chance: Random, content: bytes) -> bytes:
    at, size = _block(chance, content)
    return content[:at] + bytes(min(size, len(content) - at)) + content[at + size :]


def _dropped(chance: Random, content: bytes) -> bytes:
    at, size = _block(chance, content)
    return content[:at] + content[at + size :]


def _inserted(chance: Random, content: bytes) -> bytes:
    at, size = _block(chance, content)
    return content[:at] + chance.randbytes(size) + content[at:]


def _repeated(chance: Random, content: bytes) -> bytes:
    at, size = _block(chance, content)
    return content[: at + size] + content[at:]


def _swapped(chance: Random, content: bytes) -> bytes:
    size = min(chance.choice(_BLOCKS), len(content) // 2)
    one, other = sorted(chance.randrange(len(content) - size + 1) for _ in range(2))
    if size == 0 or other < one + size:
        return flipped(chance, content)
    first, second = content[one : one + size], content[other : other + size]
    return content[:one] + second + content[one + size : other] + first + content[other + size :]


def _sized(chance: Random, content: bytes) -> bytes:
    """A number of four or eight bytes, as sizes and counts are, becomes a strange one."""
    form = chance.choice((">I", "<I", ">Q", "<Q"))
    number = struct.pack(form, chance.choice(_SIZES))
    at = chance.randrange(len(content))
    return content[:at] + number[: len(content) - at] + content[at + len(number) :]


_ON_BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    flipped,
    flipped,
    _flipped_often,
    _head_flipped,
    cut,
    _zeroed,
    _dropped,
    _inserted,
    _repeated,
    _swapped,
    _sized,
)


def damaged(chance: Random, content: bytes) -> bytes:
    """The content with damage that knows nothing of its format."""
    return chance.choice(_ON_BYTES)(chance, content) if content else chance.randbytes(16)


def _block(chance: Random, content: bytes) -> tuple[int, int]:
    return chance.randrange(len(content)), chance.choice(_BLOCKS)


# Boxes of MP4 and elements of Matroska


def resized_box(chance: Random, content: bytes, names: Sequence[bytes]) -> bytes:
    """An MP4 or AVI with another size before one of its boxes, or another name for it."""
    offsets = [at for name in names for at in _offsets(content, name) if at >= 4]
    if not offsets:
        return _sized(chance, content)
    at = chance.choice(offsets)
    little = content.startswith(b"RIFF")
    start = at + 4 if little else at - 4  # an AVI's sizes come after their names
    size = int.from_bytes(content[start : start + 4], "little" if little else "big")
    other = chance.choice((0, 1, 7, 8, size - 1, size + 1, size * 2, size // 2, 0x7FFFFFFF, 0xFFFFFFFF)) & 0xFFFFFFFF
    if chance.random() < 0.2:
        return content[:at] + chance.choice((b"free", b"JUNK", b"\0\0\0\0", b"moov")) + content[at + 4 :]
    return content[:start] + other.to_bytes(4, "little" if little else "big") + content[start + 4 :]


def resized_element(chance: Random, content: bytes, ids: Sequence[bytes]) -> bytes:
    """A Matroska file with another size for one of its elements."""
    offsets = [at + len(name) for name in ids for at in _offsets(content, name)]
    offsets = [at for at in offsets if at < len(content)]
    if not offsets:
        return _sized(chance, content)
    at = chance.choice(offsets)
    length = 8 - content[at].bit_length() + 1 if content[at] else 8
    size = chance.choice((0, 1, 3, 127, 1 << 20, (1 << 7 * length) - 1)) % (1 << 7 * length)
    return content[:at] + ((1 << 7 * length) | size).to_bytes(length, "big") + content[at + length :]


def _offsets(content: bytes, name: bytes) -> list[int]:
    offsets: list[int] = []
    at = content.find(name)
    while at >= 0 and len(offsets) < 64:
        offsets.append(at)
        at = content.find(name, at + 1)
    return offsets


# JSON


class Literal(str):
    """A value written into JSON as it is, for numbers that json does not write."""

    __slots__ = ()


STRANGE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        0.5,
        -0.0,
        1e308,
        -1e308,
        1e-320,
        2**31,
        2**32,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63),
    ),
    *(float("nan"), float("inf"), float("-inf"), Literal("1e999"), Literal("1" * 400), Literal("9" * 5000)),
    *("", " ", "0", "-1", "nan", "\0", "\x1b[31mred\x1b[0m", "\n\r\t", "\u202e", "\ud800", "é" * 300, "a" * 70_000),
    *("../../../etc/passwd", "/dev/zero", "C:\\x", "=1+1", "<script>", "%s%n", "'", '"', "1e5", "1_000", "٣"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, [0] * 1000, Literal("[" * 900 + "]" * 900)),
    *(Literal("[" * 100_000), Literal("[" * 100_000 + "]" * 100_000), Literal('{"a":' * 5000 + "1" + "}" * 5000)),
)


def changed_json(chance: Random, content: bytes) -> bytes:
    """JSON of which some values are of another type or size, keys are gone, new or twice; seldom its bytes."""
    if chance.random() < 0.2:
        return _other_text(chance, content)
    tree = [json.loads(content)]
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _change_node(chance, tree)
    return json_bytes(tree[0], ascii_only=chance.random() < 0.8)


def _change_node(chance: Random, tree: list[Any]) -> None:
    holders = list(_holders(tree))
    holder = chance.choice(holders)
    key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    act = chance.random()
    if act < 0.6:
        holder[key] = copy.deepcopy(chance.choice(STRANGE))  # what is changed in it later stays in this input
    elif act < 0.7 and holder is not tree:
        del holder[key]
    elif act < 0.8:
        holder[key] = [holder[key]]
    elif act < 0.9 and isinstance(holder, dict):
        holder[chance.choice(("", "extra", key + " ", "__class__", "\0"))] = holder[key]
    elif isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = chance.choice((holder[key] + 1, -holder[key], holder[key] * 1000, float(holder[key]), 0))
    else:
        holder[key] = str(holder[key])


def _holders(node: Any) -> Any:
    """Every list and table of a tree that holds something."""
    if isinstance(node, dict | list) and node:
        yield node
        for value in node.values() if isinstance(node, dict) else node:
            yield from _holders(value)


def json_bytes(tree: Any, *, ascii_only: bool = True) -> bytes:
    """JSON with its literals."""
    literals: list[str] = []

    def marked(node: Any) -> Any:
        if isinstance(node, Literal):
            literals.append(node)
            return f"literal {len(literals) - 1} of many"
        if isinstance(node, dict):
            return {key: marked(value) for key, value in node.items()}
        return [marked(value) for value in node] if isinstance(node, list) else node

    text = json.dumps(marked(tree), ensure_ascii=ascii_only)
    for number, literal in enumerate(literals):
        text = text.replace(f'"literal {number} of many"', literal)
    return text.encode(errors="surrogatepass")


def changed_json_lines(chance: Random, content: bytes) -> bytes:
    """JSON lines of which some are changed, gone, twice or in another order."""
    lines = content.splitlines()
    if chance.random() < 0.15 or not lines:
        return _other_text(chance, content)
    at, act = chance.randrange(len(lines)), chance.random()
    if act < 0.7:
        lines[at] = changed_json(chance, lines[at])
    elif act < 0.8:
        del lines[at]
    elif act < 0.9:
        lines.insert(at, lines[chance.randrange(len(lines))])
    else:
        chance.shuffle(lines)
    return b"\n".join(lines) + b"\n" * chance.choice((0, 1, 1, 3))


def _other_text(chance: Random, content: bytes) -> bytes:
    """The same text in another encoding, or with damage, or something else altogether."""
    text = content.decode(errors="replace")
    others = (
        lambda: damaged(chance, content),
        lambda: b"\xef\xbb\xbf" + content,
        lambda: text.encode("utf-16"),
        lambda: text.replace("a", "ä").encode("latin-1", errors="replace"),
        lambda: text.replace("\n", "\r").encode(),
        lambda: content + content,
        lambda: b"",
        lambda: b"\0" * chance.choice(_BLOCKS),
        lambda: chance.randbytes(chance.choice(_BLOCKS)),
    )
    return chance.choice(others)()


# Tables


_CELLS = (
    *(
        "",
        " ",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1",
        "0",
        "1.5",
        "9" * 5000,
        "1" * 400,
        "1e308",
        "1e-320",
        "0x10",
        "1_0",
    ),
    *(
        "٣",
        "²",
        "\0",
        "\x1b[2J",
        "\ud7ff",
        "=1+1",
        "+1",
        "@x",
        "-x",
        '"',
        '"unclosed',
        "'",
        "a,b",
        "a;b",
        "\t",
        "é" * 90,
    ),
    *("a" * 140_000, "../x", "true", "2147483648", "18446744073709551616", "999999999999", "\u202e", "none", "a\nb"),
)


def changed_csv(chance: Random, content: bytes) -> bytes:
    """A table with other cells, columns and rows, seldom with other bytes."""
    if chance.random() < 0.15:
        return _other_text(chance, content)
    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        row, act = chance.choice(rows) if rows else [], chance.random()
        if act < 0.6 and row:
            row[chance.randrange(len(row))] = chance.choice(_CELLS)
        elif act < 0.7 and row:
            del row[chance.randrange(len(row))]
        elif act < 0.8:
            row.insert(chance.randrange(len(row) + 1), chance.choice(_CELLS))
        elif act < 0.9:
            rows.insert(chance.randrange(len(rows) + 1), list(row))
        elif rows:
            del rows[chance.randrange(len(rows))]
    text = io.StringIO()
    quoting = chance.random() < 0.8
    end, comma = chance.choice(("\n", "\n", "\r\n", "\r")), chance.choice((",", ",", ",", ",", ";", "\t"))
    if quoting:
        csv.writer(text, lineterminator=end, delimiter=comma).writerows(rows)
    else:
        text.write("".join(comma.join(row) + end for row in rows))
    return text.getvalue().encode(errors="surrogatepass")


# Images


def png_chunks(content: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and content of every part of a whole PNG."""
    chunks, at = [], len(PNG)
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += size + 12
    return chunks


def png_of(chunks: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A PNG of parts, with their checksums."""
    parts = (
        struct.pack(">I", len(part)) + kind + part + zlib.crc32(kind + part).to_bytes(4, "big") for kind, part in chunks
    )
    return PNG + b"".join(parts)


def changed_png(chance: Random, content: bytes) -> bytes:
    """A PNG with other parts whose checksums are right."""
    chunks = png_chunks(content)
    at = chance.randrange(len(chunks))
    kind, part = chunks[at]
    act = chance.random()
    if act < 0.3:
        chunks[at] = kind, damaged(chance, part)
    elif act < 0.5:
        head = bytearray(chunks[0][1])
        spot = chance.randrange(len(head))
        head[spot] = chance.choice((0, 1, 2, 3, 4, 6, 8, 16, 127, 255))
        chunks[0] = chunks[0][0], bytes(head)
    elif act < 0.6:
        del chunks[at]
    elif act < 0.7:
        chunks.insert(at, chunks[chance.randrange(len(chunks))])
    elif act < 0.8:
        chunks[at] = (
            chance.choice((b"IDAT", b"PLTE", b"tRNS", b"tEXt", b"zTXt", b"iTXt", b"acTL", b"fdAT", b"eXIf")),
            part,
        )
    elif act < 0.9:
        pixels = zlib.compress(bytes(chance.choice((0, 10, 1 << 16, 1 << 22))))
        chunks = [(k, pixels if k == b"IDAT" else p) for k, p in chunks]
    else:
        bomb = chance.choice((b"zTXt", b"iCCP")), b"name\0\0" + zlib.compress(bytes(1 << 24))
        chunks.insert(1, bomb)
    return png_of(chunks)


# Arrays and tensors


_SHAPES = (
    *(
        "(32, 48, 2)",
        "(32, 48, 2)",
        "(32, 48)",
        "(-1, 32, 2)",
        "()",
        "(0, 0, 2)",
        "(1000000, 1000000, 2)",
        "(32, 48, 3)",
    ),
    *("(9223372036854775807, 2, 2)", "(32, 48, 2, 1)", "[32, 48, 2]", "(32.0, 48, 2)", "(48, 32, 2)", "None"),
)
_TYPES = (
    *("'<f4'", "'<f4'", "'<f4'", "'>f4'", "'<f8'", "'<f2'", "'<i8'", "'|O'", "'|b1'", "'<c8'", "'<U4'", "'<M8[s]'"),
    *("'|V8'", "[('x', '<f4'), ('y', '<f4')]", "'zz'", "1", "'<f99'", "'<f4' * 9"),
)


def changed_npy(chance: Random, content: bytes) -> bytes:
    """An array file whose header tells another type, order or shape."""
    if chance.random() < 0.3:
        return damaged(chance, content)
    size = int.from_bytes(content[8:10], "little")
    body = content[10 + size :]
    shape, kind = chance.choice(_SHAPES), chance.choice(_TYPES)
    order = chance.choice(("False", "False", "True", "1", "None"))
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if chance.random() < 0.2:
        header = chance.choice(
            ("", "{", "(" * 5000, "{}", "[" * 200 + "]" * 200, "{'descr': '<f4'}", "9" * 5000, header * 300)
        )
    text = header.encode() + b"\n"
    version = chance.choice((b"\x01\x00", b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text) & 0xFFFF)
    if chance.random() < 0.3:
        body = damaged(chance, body)
    return b"\x93NUMPY" + version + length + text + body


def changed_safetensors(chance: Random, content: bytes) -> bytes:
    """A file of tensors whose header tells other offsets, shapes and types, or whose tensors are others."""
    size = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + size], content[8 + size :]
    act = chance.random()
    if act < 0.15:
        return damaged(chance, content)
    if act < 0.3:
        return (len(header) + chance.choice((-1, 1, -8, 1 << 20, 1 << 40))).to_bytes(8, "little") + header + body
    if act < 0.45:
        at = chance.randrange(max(1, len(body) - 4))
        strange = struct.pack("<f", chance.choice((float("nan"), float("inf"), 1e38, -1e-45)))
        body = body[:at] + strange + body[at + 4 :]
    elif act < 0.8:
        tensors = json.loads(header)
        name = chance.choice([name for name in tensors if name != "__metadata__"])
        about, what = tensors[name], chance.choice(("dtype", "shape", "data_offsets", "name"))
        if what == "dtype":
            about["dtype"] = chance.choice(
                ("F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "C64", "X", "")
            )
        elif what == "shape":
            shapes: tuple[list[Any], ...] = (
                [],
                [0],
                [-1],
                [1 << 62, 4],
                [1 << 40],
                about["shape"][::-1],
                [*about["shape"], 1],
                [1.5],
            )
            about["shape"] = chance.choice(shapes)
        elif what == "data_offsets":
            start, end = about["data_offsets"]
            about["data_offsets"] = chance.choice(
                ([end, start], [0, end], [start, end + 4], [start, 1 << 62], [-4, end], [start])
            )
        else:
            tensors[chance.choice(("module." + name, "layer4." + name, "", "\0", name + "x"))] = tensors.pop(name)
        header = json.dumps(tensors).encode()
    else:
        header = changed_json(chance, header)
    return len(header).to_bytes(8, "little") + header + body


def changed_zip(chance: Random, content: bytes) -> bytes:
    """A zip with members that are damaged, gone, new, renamed, twice or compressed."""
    if chance.random() < 0.25:
        return damaged(chance, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    at, act = chance.randrange(len(members)), chance.random()
    # Most members are tensors; the pickle that names them is one.
    told = next((index for index, (name, _) in enumerate(members) if name.endswith(".pkl")), at)
    how = zipfile.ZIP_STORED
    if act < 0.5:
        name, member = members[told]
        members[told] = name, damaged(chance, member)
    elif act < 0.6:
        name, member = members[at]
        members[at] = name, damaged(chance, member)
    elif act < 0.7:
        del members[at]
    elif act < 0.8:
        members[at] = chance.choice(("x", "../x", "archive/data.pkl", "", "a" * 300)), members[at][1]
    elif act < 0.9:
        how = zipfile.ZIP_DEFLATED
    else:
        members.append((members[at][0] + "2", chance.randbytes(64)))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", how) as archive:
        for name, member in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), member, how)
    return written.getvalue()
