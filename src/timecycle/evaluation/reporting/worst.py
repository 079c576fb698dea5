"""Contact sheet of the sequences with the worst scores, with the predicted labels overlaid."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageFont

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip
from timecycle.evaluation.reporting.figure import RgbImage
from timecycle.evaluation.reporting.report import Report
from timecycle.evaluation.reporting.scores import choose_score, in_print, is_number, lower_is_better, score_name
from timecycle.labels import Labels
from timecycle.render import Captioned, contact_sheet, thumbnail
from timecycle.video.image_file import IMAGE_FORMATS

_SHOWN = (0.25, 0.5, 0.75, 1.0)  # times within a clip
_CAPTION_PX = 14  # the font size of the sheet's captions


def draw_worst(
    report: Report, clips: Sequence[Clip], predictions: Path, *, count: int = 4, width_px: int = 200
) -> RgbImage:
    """Draw the sequences with the worst scores, a row each: four frames with the predicted labels overlaid."""
    score = choose_score([report])
    values = {name: clip[score] for name, clip in report.per_sequence.items() if is_number(clip.get(score))}
    worst = sorted(values, key=lambda name: values[name], reverse=lower_is_better(score))[:count]
    by_name = {clip.name: clip for clip in clips}
    missing = [name for name in worst if name not in by_name]
    if missing:
        raise SettingsError(
            f"the report has the sequence {missing[0]} but the clips do not",
            remedy="give the clips of the benchmark that was evaluated",
        )
    tiles = []
    for name in worst:
        value = f", {score_name(score)} {in_print(score, values[name]):.1f}"
        caption = _shortened(name, max_px=width_px - _text_width_px(value)) + value
        tiles += _tiles(by_name[name], predictions / name, caption, width_px=width_px)
    return contact_sheet(tiles, columns=len(_SHOWN), width_px=width_px)


def predicted_files(clip: Clip, folder: Path) -> dict[int, Path]:
    """Return the files of predicted labels by frame; a benchmark may store other files than labels."""
    files = {path.stem: path for path in folder.glob("[0-9]*.*")} if folder.is_dir() else {}
    names = {index: f"{index:05d}" for index in range(clip.annotated_frame, len(clip.frames))}
    return {index: files[name] for index, name in names.items() if name in files}


def _tiles(clip: Clip, folder: Path, caption: str, *, width_px: int) -> list[Captioned]:
    labels, files = type(clip.read_annotation()), predicted_files(clip, folder)
    if not files:
        raise LabelError(f"{folder} has no labels of {clip.name}", remedy="predict the sequence again")
    tiles = []
    for time in _SHOWN:
        wanted = clip.annotated_frame + time * (len(clip.frames) - 1 - clip.annotated_frame)
        # Masks of other programs may lack the last frame, which is not scored.
        index = min(files, key=lambda frame: abs(frame - wanted))
        with Image.open(clip.frames[index], formats=IMAGE_FORMATS) as image:
            frame = np.array(image.convert("RGB"))
        tile = _small_overlay(frame, labels.read(files[index]), width_px=width_px)
        tiles.append(Captioned(tile, caption if time == _SHOWN[0] else f"frame {index} ({100 * time:.0f} %)"))
    return tiles


def _small_overlay(frame: RgbImage, labels: Labels, *, width_px: int) -> UInt8[np.ndarray, "h w 3"]:
    """Overlay labels on a thumbnail of the frame; points are drawn after scaling, or they would vanish."""
    if labels.size() is not None:
        return thumbnail(labels.overlay(frame), width_px=width_px)
    small = thumbnail(frame, width_px=width_px)
    scale = np.float32(small.shape[1] / frame.shape[1]), np.float32(small.shape[0] / frame.shape[0])
    return labels.moved(lambda xy: (xy + np.float32(0.5)) * scale - np.float32(0.5)).overlay(small)


def _shortened(name: str, *, max_px: float) -> str:
    """Replace the middle of a name by dots if it is too wide."""
    kept, short = len(name), name
    while _text_width_px(short) > max_px and kept > 2:
        kept -= 1
        short = f"{name[: -(-kept // 2)]}...{name[len(name) - kept // 2 :]}"
    return short


def _text_width_px(text: str) -> float:
    return ImageFont.load_default(_CAPTION_PX).getlength(text)
