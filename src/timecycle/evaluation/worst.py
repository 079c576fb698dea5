"""The sequences that went worst, as a sheet of frames with what was predicted drawn over them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageFont

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip
from timecycle.evaluation.figure import Drawing
from timecycle.evaluation.report import Report
from timecycle.evaluation.scores import choose_score, in_print, is_number, lower_is_better, score_name
from timecycle.labels import Keypoints, Labels
from timecycle.render import Captioned, contact_sheet, overlay, thumbnail
from timecycle.video.image_file import IMAGE_FORMATS

_SHOWN = (0.25, 0.5, 0.75, 1.0)  # of a clip
_LETTERS_PX = 14  # as the sheet sets its captions


def draw_worst(
    report: Report, clips: Sequence[Clip], predictions: Path, *, count: int = 4, width_px: int = 200
) -> Drawing:
    """The sequences with the worst scores, a row each: four moments with the predicted labels over them."""
    score = choose_score([report])
    values = {name: clip[score] for name, clip in report.per_sequence.items() if is_number(clip.get(score))}
    worst = sorted(values, key=lambda name: values[name], reverse=lower_is_better(score))[:count]
    found = {clip.name: clip for clip in clips}
    missing = [name for name in worst if name not in found]
    if missing:
        raise SettingsError(
            f"the report has the sequence {missing[0]} but the clips given have not",
            remedy="give the clips of the benchmark that was evaluated",
        )
    tiles = []
    for name in worst:
        told = f", {score_name(score)} {in_print(score, values[name]):.1f}"
        caption = _fit(name, room_px=width_px - _width_px(told)) + told
        tiles += _moments(found[name], predictions / name, caption, width_px=width_px)
    return contact_sheet(tiles, columns=len(_SHOWN), width_px=width_px)


def predicted_files(clip: Clip, folder: Path) -> dict[int, Path]:
    """The files of predicted labels by frame; a benchmark may store other things than labels."""
    files = {path.stem: path for path in folder.glob("[0-9]*.*")} if folder.is_dir() else {}
    names = {index: f"{index:05d}" for index in range(clip.first, len(clip.frames))}
    return {index: files[name] for index, name in names.items() if name in files}


def _moments(clip: Clip, folder: Path, caption: str, *, width_px: int) -> list[Captioned]:
    labels, files = type(clip.given()), predicted_files(clip, folder)
    if not files:
        raise LabelError(f"{folder} has no labels of {clip.name}", remedy="predict the sequence again")
    shots = []
    for part in _SHOWN:
        wanted = clip.first + part * (len(clip.frames) - 1 - clip.first)
        # Masks of other programs may lack the last frame, which is not scored.
        index = min(files, key=lambda frame: abs(frame - wanted))
        with Image.open(clip.frames[index], formats=IMAGE_FORMATS) as image:
            frame = np.array(image.convert("RGB"))
        shot = _small(frame, labels.read(files[index]), width_px=width_px)
        shots.append(Captioned(shot, caption if part == _SHOWN[0] else f"frame {index} ({100 * part:.0f} %)"))
    return shots


def _small(frame: Drawing, labels: Labels, *, width_px: int) -> UInt8[np.ndarray, "h w 3"]:
    """The frame made small with its labels over it; points are drawn afterwards, or they would vanish."""
    if not isinstance(labels, Keypoints):
        return thumbnail(overlay(frame, labels), width_px=width_px)
    small = thumbnail(frame, width_px=width_px)
    scale = np.float32(small.shape[1] / frame.shape[1]), np.float32(small.shape[0] / frame.shape[0])
    return overlay(small, replace(labels, xy=(labels.xy + np.float32(0.5)) * scale - np.float32(0.5)))


def _fit(name: str, *, room_px: float) -> str:
    """A name without its middle, if it is too long for the room."""
    kept, short = len(name), name
    while _width_px(short) > room_px and kept > 2:
        kept -= 1
        short = f"{name[: -(-kept // 2)]}...{name[len(name) - kept // 2 :]}"
    return short


def _width_px(text: str) -> float:
    return ImageFont.load_default(_LETTERS_PX).getlength(text)
