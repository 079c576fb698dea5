"""report.html: a page that says which frame to fix first and why. It needs only a browser, and no network."""

import base64
import html
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.labels import KINDS
from timecycle.render import Picture
from timecycle.review.queue import Suggestion
from timecycle.runs.tables import RunTables

_WIDTH, _HEIGHT = 1000, 150  # of a curve, in SVG units
_MAX_CURVES = 12  # one for each of the least confident objects
_MAX_POINTS = 1500
_STATES = {
    "visible": ("#cfe8d4", "confidence 0.5 or more"),
    "uncertain": ("#f6e3a8", "0.25 to 0.5"),
    "lost": ("#f0b9b0", "below 0.25"),
    "occluded": ("#d5d8de", "nothing labelled, or hardly anything"),
    "absent": ("#e9e9e6", "annotated as not there"),
}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1c1e22;background:#fafaf8;margin:0 auto;max-width:1080px;padding:24px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:32px 0 8px}p{margin:6px 0}
.quiet{color:#63676e;font-size:14px}code{background:#eeeeea;border-radius:4px;padding:2px 6px;font-size:14px}
.name span{display:inline-block;width:14px;height:14px;border-radius:3px;margin-right:8px;vertical-align:-2px}
.first{display:flex;gap:24px;background:#fff;border:1px solid #e2e2dc;border-radius:8px;padding:16px;margin-top:16px}
.first img{width:58%;border-radius:4px}.first .big{font-size:22px;font-weight:600;margin:0 0 8px}
svg{width:100%;height:auto;background:#fff;border:1px solid #e2e2dc;border-radius:8px}
.queue{display:grid;grid-template-columns:repeat(auto-fill,minmax(240px,1fr));gap:16px}
.queue figure{margin:0;background:#fff;border:1px solid #e2e2dc;border-radius:8px;overflow:hidden}
.queue img{width:100%;display:block}.queue figcaption{padding:8px 12px;font-size:14px}
.key span{display:inline-block;border-radius:4px;padding:1px 8px;margin-right:8px;font-size:13px}
@media(max-width:700px){.first{display:block}.first img{width:100%}}
"""


@dataclass(frozen=True)
class ReviewFiles:
    """The picture and the labels of a frame to check, by name in the output folder; None where not written."""

    frame: str | None
    labels: str | None


def report_html(
    tables: RunTables,
    queue: Sequence[Suggestion],
    pictures: Mapping[int, Picture],
    files: Mapping[int, ReviewFiles],
    *,
    corrected: int = 0,
) -> str:
    """Return the page. `pictures` shows the suggested frames with their labels and `files` are those to edit, by index;
    `corrected` is the number of objects that confidence was calibrated with."""
    video = tables.record.get("video", {})
    title = html.escape(str(video.get("name", tables.folder.name)))
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="quiet">{len(tables.frames)} frames, {_count(tables.names, "object")}, '
        f"{_count(tables.annotated_frames, 'annotated frame')} · "
        f"encoder {html.escape(str(tables.record['encoder']['name']))}"
        f' · <a href="overlay.mp4">overlay video</a></p>',
        _first(tables, queue, pictures, files),
        "<h2>Confidence over time</h2>",
        _key(),
        *(_curve(tables, name, queue) for name in _shown(tables)),
        _omitted(tables),
        "<h2>Frames to check, the most useful first</h2>",
        '<div class="queue">'
        + "".join(_card(rank, tables, one, pictures, files) for rank, one in enumerate(queue, 1))
        + "</div>"
        if queue
        else "<p>None.</p>",
        _about(corrected),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: what to check</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def correct_command(
    tables: RunTables, one: Suggestion, files: ReviewFiles | None, *, folder: Path | None = None
) -> str | None:
    """Return the command to run once the labels of a frame are edited.

    It works from any working directory, unless `folder` names the run's folder as the user did. None where there are
    no labels to edit, or where the run does not record the location of its video.
    """
    if files is None or files.labels is None or not tables.record.get("origin"):
        return None
    folder = folder or tables.folder.absolute()
    edited = str(folder / files.labels)
    argument = edited if edited.endswith(".csv") else f"{one.frame_number}={edited}"  # rows of a CSV name their frame
    return shlex.join(["timecycle", "correct", str(folder), argument])


def _first(
    tables: RunTables, queue: Sequence[Suggestion], pictures: Mapping[int, Picture], files: Mapping[int, ReviewFiles]
) -> str:
    if not queue:
        return "<p>Nothing to check: every frame is annotated or has full confidence.</p>"
    best = queue[0]
    return (
        f'<div class="first">{_image(pictures.get(best.index), best)}<div>'
        f'<p class="big">Fix frame {best.frame_number} first</p>'
        f"<p>{_sentence(best.reason)}.</p>"
        f"<p>An annotation here helps most: it is propagated to {_covered_frames(tables, best)}.</p>"
        f"{_instructions(tables, best, files.get(best.index))}</div></div>"
    )


def _instructions(tables: RunTables, one: Suggestion, files: ReviewFiles | None) -> str:
    """Describe how to correct a frame, where it can be corrected."""
    command = correct_command(tables, one, files)
    if files is None or files.labels is None or command is None:
        return _links(one, files)
    return (
        f'<p class="quiet">Edit <a href="{files.labels}">{files.labels}</a> in the output folder, the propagated '
        f"labels of this frame, in any program and save it. Then run:</p>"
        f"<p><code>{html.escape(command)}</code></p>{_links(one, files)}"
    )


def _links(one: Suggestion, files: ReviewFiles | None) -> str:
    links = [f'<a href="overlay.mp4#t={one.time_seconds:.3f}">overlay video from here</a>']
    if files is not None and files.frame is not None:
        links.insert(0, f'<a href="{files.frame}">frame {one.frame_number}</a>')
    if files is not None and files.labels is not None:
        links.insert(1, f'<a href="{files.labels}">its labels, to edit</a>')
    return f'<p class="quiet">{" · ".join(links)}</p>'


def _sentence(text: str) -> str:
    return html.escape(text[:1].upper() + text[1:])


def _covered_frames(tables: RunTables, one: Suggestion) -> str:
    first, last = tables.number(one.first), tables.number(one.last)
    return f"frames {first} to {last}" if last > first else f"frame {first}"


def _card(
    rank: int, tables: RunTables, one: Suggestion, pictures: Mapping[int, Picture], files: Mapping[int, ReviewFiles]
) -> str:
    return (
        f"<figure>{_image(pictures.get(one.index), one)}<figcaption><b>{rank}. Frame {one.frame_number}</b>, "
        f"{one.time_seconds:.2f} s<br>{_sentence(one.reason)}<br>"
        f'<span class="quiet">Propagated to {_covered_frames(tables, one)}</span>{_links(one, files.get(one.index))}'
        f"</figcaption></figure>"
    )


def _image(picture: Picture | None, one: Suggestion) -> str:
    if picture is None:
        return ""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="JPEG", quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    alt = f"frame {one.frame_number} with its labels, {html.escape(one.name, quote=True)} outlined"
    return f'<img alt="{alt}" src="data:image/jpeg;base64,{data}">'


def _key() -> str:
    spans = (f'<span style="background:{colour}">{state}: {text}</span>' for state, (colour, text) in _STATES.items())
    return (
        f'<p class="key">{"".join(spans)}</p>'
        '<p class="quiet">Black marks: the object is annotated. Numbered marks: frames to check.</p>'
    )


def _shown(tables: RunTables) -> list[str]:
    """Return the objects with a curve: all, or the least confident ones on average."""
    names = tables.names
    if len(names) <= _MAX_CURVES:
        return names
    return sorted(names, key=lambda name: _mean_confidence(tables, name))[:_MAX_CURVES]


def _omitted(tables: RunTables) -> str:
    more = len(tables.names) - _MAX_CURVES
    return f'<p class="quiet">{more} more objects, with higher confidence, are in objects.csv.</p>' if more > 0 else ""


def _mean_confidence(tables: RunTables, name: str) -> float:
    return float(np.mean([of[name].confidence for of in tables.objects.values() if name in of]))


def _curve(tables: RunTables, name: str, queue: Sequence[Suggestion]) -> str:
    count = max(len(tables.frames) - 1, 1)
    step = -(-len(tables.frames) // _MAX_POINTS)
    points = [
        (frame.index, tables.objects[frame.index][name])
        for frame in tables.frames[::step]
        if name in tables.objects.get(frame.index, {})
    ]
    left, right, top, base = 44, 16, 26, _HEIGHT - 22

    def x(index: float) -> float:
        return left + (_WIDTH - left - right) * min(max(index / count, 0.0), 1.0)

    def y(value: float) -> float:
        return base - (base - top) * value

    bands = "".join(
        f'<rect x="{x(start - step / 2):.1f}" y="{top}" width="{x(end - step / 2) - x(start - step / 2):.2f}" '
        f'height="{base - top}" '
        f'fill="{_STATES.get(state, ("#fff", ""))[0]}"/>'
        for start, end, state in _segments([(index, one.state) for index, one in points], step)
    )
    line = " ".join(f"{x(index):.1f},{y(one.confidence):.1f}" for index, one in points)
    levels = "".join(
        f'<text x="{left - 8}" y="{y(level) + 4:.1f}" text-anchor="end" class="t">{level:g}</text>'
        f'<line x1="{left}" x2="{_WIDTH - right}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#0001"/>'
        for level in (0, 0.5, 1)
    )
    annotated = "".join(
        f'<line x1="{x(index):.1f}" x2="{x(index):.1f}" y1="{top}" y2="{base}" stroke="#1c1e22" stroke-width="2.5">'
        f"<title>frame {tables.number(index)} is annotated</title></line>"
        for index, objects in tables.objects.items()
        if name in objects and objects[name].annotated
    )
    marks = "".join(
        f'<circle cx="{x(one.index):.1f}" cy="{top - 10}" r="9" fill="#1c1e22"/>'
        f'<text x="{x(one.index):.1f}" y="{top - 6}" text-anchor="middle" fill="#fff" class="t">{number}'
        f"<title>check frame {one.frame_number}</title></text>"
        for number, one in enumerate(queue, 1)
    )
    ticks = "".join(
        f'<text x="{x(index):.1f}" y="{_HEIGHT - 6}" text-anchor="middle" class="t">{tables.number(index)}</text>'
        for index in _ticks(len(tables.frames))
    )
    colour = "#{:02x}{:02x}{:02x}".format(*KINDS[tables.kind].object_colour(name, tables.names.index(name)))
    shown = html.escape(tables.shown(name), quote=True)
    return (
        f'<p class="name"><span style="background:{colour}"></span><b>{shown}</b></p>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="confidence in {shown}">'
        f"<style>.t{{font:11px system-ui,sans-serif}}</style>{bands}{levels}"
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.2"/>'
        f"{annotated}{marks}{ticks}</svg>"
    )


def _segments(states: Sequence[tuple[int, str]], step: int) -> Iterable[tuple[int, int, str]]:
    """Group neighbouring frames in the same state, as (first, one after the last, state)."""
    if not states:
        return
    starts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(states)) if a[1] != b[1]), len(states)]
    for begin, end in pairwise(starts):
        yield states[begin][0], states[end - 1][0] + step, states[begin][1]


def _ticks(frames: int) -> list[int]:
    """Return about ten evenly spaced frames at round indices."""
    rough = max(frames / 10, 1)
    size = 10 ** int(np.floor(np.log10(rough)))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return list(range(0, frames, int(step)))


def _count(items: Sequence[object], name: str) -> str:
    return f"{len(items)} {name}{'' if len(items) == 1 else 's'}"


def _about(corrected: int) -> str:
    calibrated = (
        f"<p>On this page confidence is calibrated by the frames you corrected ({corrected} "
        f"object{'' if corrected == 1 else 's'} so far); objects.csv has it uncalibrated.</p>"
        if corrected
        else ""
    )
    return (
        "<h2>What confidence is</h2>"
        "<p>Confidence is estimated without ground truth, from four checks: whether matches to an earlier frame and "
        "back return to where they began, whether labels propagated back to an annotated frame agree with the "
        "annotation, how clear the labels were on the frames between, and whether an object still looks as it was "
        "annotated. Trust the order before the numbers. It can be wrong where an object turns a side to the camera "
        "that was never annotated, and where two objects look alike. All signals are in objects.csv.</p>" + calibrated
    )
