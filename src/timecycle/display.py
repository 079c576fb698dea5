"""Pictures of results: as images, and inline in notebooks."""

import base64
import io
from abc import abstractmethod
from html import escape

from PIL import Image

_MAX_PX = 640  # of the longer side, inline in a notebook


class Displayed:
    """A result with a picture: `show` returns it, and a notebook shows a small copy of it."""

    @abstractmethod
    def show(self) -> Image.Image:
        """Return a picture of this object."""

    def _repr_html_(self) -> str | None:
        return inline_picture(self.show(), caption=repr(self))


def inline_picture(image: Image.Image, *, caption: str) -> str:
    """Return HTML with a small copy of an image, which needs no file beside it."""
    small = image.convert("RGB")
    small.thumbnail((_MAX_PX, _MAX_PX))
    file = io.BytesIO()
    small.save(file, format="PNG")
    data = base64.b64encode(file.getvalue()).decode()
    text = escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'
