"""How the reference and the site read the comment that explains a field: at the end of its last line."""

import io
import tokenize


def field_comment(source: str) -> str:
    """Return the comment at the end of the source of a field, or an empty text."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source.strip()).readline))
    last_line = source.strip().count("\n") + 1
    comments = (one.string for one in tokens if one.type == tokenize.COMMENT and one.start[0] == last_line)
    return next(comments, "").removeprefix("#").strip()
