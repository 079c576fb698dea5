"""The colours of object ids: the PASCAL VOC table, which DAVIS and most labelling tools share."""

from functools import cache

import numpy as np
from jaxtyping import UInt8


@cache
def palette() -> UInt8[np.ndarray, "256 3"]:
    """Colour of each id: bit j of channel c (from the top) is bit 3j + c of the id."""
    ids = np.arange(256)
    table = np.zeros((256, 3), np.uint8)
    for channel in range(3):
        for bit in range(8):
            table[:, channel] |= (((ids >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    table.setflags(write=False)
    return table
