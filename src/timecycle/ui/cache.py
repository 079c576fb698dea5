"""Pictures that were sent to the page, kept for a while."""

from collections import OrderedDict


class PictureCache:
    """The pictures that were used last, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def get(self, key: tuple[str, int]) -> bytes | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: tuple[str, int], picture: bytes) -> None:
        self._bytes += len(picture) - len(self._kept.pop(key, b""))
        self._kept[key] = picture
        while self._bytes > self._most and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])
