"""DAVIS-2016 and DAVIS-2017 (validation): masks of the first frame given, region J and boundary F of the others.

ROOT/JPEGImages/480p/CLIP/00000.jpg        ROOT/Annotations/480p/CLIP/00000.png
ROOT/ImageSets/2017/val.txt                one name per line (2017; also 2016 in the joint release)
ROOT/ImageSets/480p/val.txt                "/JPEGImages/480p/CLIP/00000.jpg /Annotations/480p/CLIP/00000.png" (2016)

2016 has one object per clip, whatever values its masks have; 2017 numbers its objects and averages over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Integer

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, OnFrame, Progress, Scores, choose
from timecycle.evaluation.carrying import carry_labels
from timecycle.evaluation.layout import folder_of, images_in, listed
from timecycle.evaluation.methods import Method
from timecycle.evaluation.metrics.objects import ObjectScores, average_objects, score_objects
from timecycle.labels import Masks
from timecycle.propagation.settings import PropagateConfig

Year = Literal["2016", "2017"]

_CLIPS: dict[Year, int] = {"2016": 20, "2017": 30}  # of the validation sets
_LISTS: dict[Year, tuple[str, ...]] = {"2017": ("2017/val.txt",), "2016": ("2016/val.txt", "480p/val.txt")}


@dataclass(frozen=True)
class Davis:
    """The validation set of one year."""

    year: Year
    root: Path
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        return f"davis{self.year}"

    @property
    def truth_files(self) -> list[Path]:
        return [path for clip in self.clips for path in self._truth(clip)]

    def predict_clip(
        self, clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame
    ) -> None:
        carry_labels(clip, method, config, folder, on_frame=on_frame)

    def score(self, predictions: Path, *, progress: Progress | None = None) -> Scores:
        """J and F over frames 1 to N-2 of every object; overall scores average objects, not clips."""
        everyone: list[ObjectScores] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, clip in enumerate(self.clips, start=1):
            objects = self._score_clip(clip, folder_of(predictions / clip.name, what="predicted masks"))
            everyone += objects
            per_sequence[clip.name] = {
                **_rounded(average_objects(objects)),
                "objects": len(objects),
                "J_per_frame": np.mean([one.j for one in objects], axis=0).round(4).tolist(),
                "F_per_frame": np.mean([one.f for one in objects], axis=0).round(4).tolist(),
            }
            if progress:
                progress(done, len(self.clips))
        return Scores(overall=_rounded(average_objects(everyone)), per_sequence=per_sequence)

    def _score_clip(self, clip: Clip, folder: Path) -> list[ObjectScores]:
        truth = self._truth(clip)
        predicted = {path.stem: path for path in images_in(folder, what="predicted masks")}
        # The protocol leaves the first and the last frame out, so they need not be there.
        missing = [path.name for path in truth[1:-1] if path.stem not in predicted]
        if missing:
            raise LabelError(
                f"{folder} lacks {missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}",
                remedy=f"give one mask per frame, named like the {len(truth)} annotations of {clip.name}",
            )
        truth_ids = np.stack([self._ids(path) for path in truth])
        blank = np.zeros_like(truth_ids[0])
        ids = [self._ids(predicted[path.stem]) if path.stem in predicted else blank for path in truth]
        for path, mask in zip(truth, ids, strict=True):
            if mask.shape != blank.shape:
                raise LabelError(
                    f"{folder / path.name} is {mask.shape[1]}x{mask.shape[0]} but its annotation is "
                    f"{blank.shape[1]}x{blank.shape[0]}",
                    remedy="resize the masks to the size of the annotations with nearest neighbour",
                )
        return score_objects(np.stack(ids), truth_ids)

    def _ids(self, path: Path) -> Integer[np.ndarray, "height width"]:
        ids = Masks.read(path).ids
        return (ids > 0).astype(np.uint8) if self.year == "2016" else ids.astype(np.uint16)

    def _truth(self, clip: Clip) -> tuple[Path, ...]:
        return images_in(self.root / "Annotations" / "480p" / clip.name, what="annotations")


def find_davis(root: Path, *, year: Year | None = None, names: Sequence[str] = ()) -> Davis:
    """The validation set in `root`; DAVIS-2017 where both years are listed and none is asked for."""
    images, annotations = (
        folder_of(root / part / "480p", what=what)
        for part, what in (("JPEGImages", "DAVIS frames"), ("Annotations", "DAVIS annotations"))
    )
    year, clip_names = _list_clips(root, year)
    if len(clip_names) != _CLIPS[year]:
        raise SettingsError(
            f"{root} lists {len(clip_names)} sequences but DAVIS-{year} val has {_CLIPS[year]}",
            remedy="restore ImageSets from the release; to evaluate a part of it, pass --sequences",
        )
    clips = []
    for name in choose(clip_names, names):
        frames = images_in(images / name, what=f"frames of {name}, one of {_CLIPS[year]} sequences")
        truth = images_in(annotations / name, what=f"annotations of {name}, one of {_CLIPS[year]} sequences")
        if [path.stem for path in frames] != [path.stem for path in truth]:
            raise LabelError(
                f"{name} has {len(frames)} frames in {images / name} but {len(truth)} annotations in "
                f"{annotations / name}, or they have other names",
                remedy="restore the sequence from the release: every frame is annotated",
            )
        clips.append(Clip(name=name, frames=frames, given=partial(_first_mask, truth[0], year)))
    return Davis(year, root, tuple(clips))


def _list_clips(root: Path, year: Year | None) -> tuple[Year, list[str]]:
    years: tuple[Year, ...] = (year,) if year else ("2017", "2016")
    tried = []
    for candidate in years:
        for name in _LISTS[candidate]:
            path = root / "ImageSets" / name
            tried.append(str(path))
            if path.is_file():
                return candidate, listed(path)
    raise SettingsError(
        f"{root} has no list of the DAVIS validation sequences: none of {', '.join(tried)}",
        remedy="ROOT is the folder that holds JPEGImages, Annotations and ImageSets",
    )


def _first_mask(path: Path, year: Year) -> Masks:
    ids = Masks.read(path).ids
    return Masks.of((ids > 0).astype(np.uint8) if year == "2016" else ids)


def _rounded(scores: Any) -> dict[str, float]:
    return {name: round(float(value), 6) for name, value in vars(scores).items()}
