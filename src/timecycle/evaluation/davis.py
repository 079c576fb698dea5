"""DAVIS-2016 and DAVIS-2017 (validation): masks of the first frame given, region J and boundary F of the others.

ROOT/JPEGImages/480p/CLIP/00000.jpg        ROOT/Annotations/480p/CLIP/00000.png
ROOT/ImageSets/2017/val.txt                one name per line (2017; also 2016 in the joint release)
ROOT/ImageSets/480p/val.txt                "/JPEGImages/480p/CLIP/00000.jpg /Annotations/480p/CLIP/00000.png" (2016)

2016 has one object per clip, whatever value its masks give it; 2017 numbers its objects and averages over them.
What would score low without a word is refused: 2017 masks in colours that have no number, 2016 masks of several objects
or without a background. Ids of 2017 that were not given are background, and a warning says so.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Integer, UInt16

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, Progress, Scores, choose
from timecycle.evaluation.carrying import carry_labels
from timecycle.evaluation.layout import and_more, folder_of, images_in, listed
from timecycle.evaluation.metrics.objects import ObjectScores, average_objects, score_objects
from timecycle.labels import Masks
from timecycle.labels.mask_file import colours_in

Year = Literal["2016", "2017"]
Ids = Integer[np.ndarray, "height width"]

CLIPS: Mapping[Year, int] = {"2016": 20, "2017": 30}  # of the validation sets
_LISTS: dict[Year, tuple[str, ...]] = {"2017": ("2017/val.txt",), "2016": ("2016/val.txt", "480p/val.txt")}

_ONE_OBJECT = "DAVIS-2016 has one object: write 0 for the background and one other value for the object"

log = logging.getLogger("timecycle")


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

    predict_clip = staticmethod(carry_labels)

    def score(self, predictions: Path, *, progress: Progress | None = None) -> Scores:
        """J and F over frames 1 to N-2 of every object; overall scores average objects, not clips."""
        everyone: list[ObjectScores] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        unknown: dict[Path, list[int]] = {}
        for done, clip in enumerate(self.clips, start=1):
            truth = [(path, _objects(Masks.read(path).ids, self.year)) for path in self._truth(clip)]
            masks = self._predicted(clip, predictions / clip.name, dict(truth))
            unknown |= _not_given(masks, truth[0][1])
            objects = score_objects(*(np.stack([ids for _, ids in side]) for side in (masks, truth)))
            everyone += objects
            per_sequence[clip.name] = {
                **_rounded(average_objects(objects)),
                "objects": len(objects),
                "frames": len(truth),
                "J_per_frame": np.mean([one.j for one in objects], axis=0).round(4).tolist(),
                "F_per_frame": np.mean([one.f for one in objects], axis=0).round(4).tolist(),
            }
            if progress:
                progress(done, len(self.clips))
        if unknown:
            path, ids = next(iter(unknown.items()))
            others = f", as have {len(unknown) - 1} other masks" if len(unknown) > 1 else ""
            log.warning("%s has ids that were not given (%s)%s: they count as background", path, _listed(ids), others)
        return Scores(overall=_rounded(average_objects(everyone)), per_sequence=per_sequence)

    def _predicted(self, clip: Clip, folder: Path, truth: Mapping[Path, Ids]) -> list[tuple[Path, Ids]]:
        """The predicted mask of every frame; those of frames that are not scored may be missing."""
        found = images_in(folder, what="predicted masks", remedy="the masks of a sequence are in a folder of its name")
        files = {path.stem: path for path in found}
        # The protocol leaves the first and the last frame out.
        missing = [path.name for path in list(truth)[1:-1] if path.stem not in files]
        if missing:
            raise LabelError(
                f"{folder} lacks {and_more(missing)}",
                remedy=f"give one mask per frame, named like the {len(truth)} annotations of {clip.name}",
            )
        masks = []
        for annotation, true_ids in truth.items():
            path = files.get(annotation.stem)
            ids = self._read_predicted(path) if path else np.zeros_like(true_ids)
            if ids.shape != true_ids.shape:
                raise LabelError(
                    f"{path} is {ids.shape[1]}x{ids.shape[0]} but its annotation is "
                    f"{true_ids.shape[1]}x{true_ids.shape[0]}",
                    remedy="resize the masks to the size of the annotations with nearest neighbour",
                )
            masks.append((path or folder / annotation.name, ids))
        if self.year == "2016" and all(ids.all() for path, ids in masks if path.stem in files):
            raise LabelError(f"no mask in {folder} has a background", remedy=_ONE_OBJECT)
        return masks

    def _read_predicted(self, path: Path) -> Ids:
        ids = Masks.read(path).ids
        if self.year == "2016":
            values = _present(ids)
            if len(values) > 2:
                raise LabelError(f"{path} has {len(values)} values: {_listed(values)}", remedy=_ONE_OBJECT)
        elif colours_in([path]):
            raise LabelError(
                f"{path} shows its objects in colours that are not in DAVIS's palette: their ids cannot be known",
                remedy="save the masks as palette PNGs with the ids of the annotations",
            )
        return _objects(ids, self.year)

    def _truth(self, clip: Clip) -> tuple[Path, ...]:
        return images_in(self.root / "Annotations" / "480p" / clip.name, what="annotations")


def find_davis(root: Path, *, year: Year | None = None, names: Sequence[str] = ()) -> Davis:
    """The validation set in `root`; DAVIS-2017 where both years are listed and none is asked for."""
    images, annotations = (
        folder_of(root / part / "480p", what=what)
        for part, what in (("JPEGImages", "DAVIS frames"), ("Annotations", "DAVIS annotations"))
    )
    year, clip_names = _list_clips(root, year)
    if len(clip_names) != CLIPS[year] and not names:
        raise SettingsError(
            f"{root} lists {len(clip_names)} sequences but DAVIS-{year} val has {CLIPS[year]}",
            remedy="restore ImageSets from the release; to evaluate a part of it, pass --sequences",
        )
    clips = []
    for name in choose(clip_names, names):
        frames = images_in(images / name, what=f"frames of {name}, one of {CLIPS[year]} sequences")
        truth = images_in(annotations / name, what=f"annotations of {name}, one of {CLIPS[year]} sequences")
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
    return Masks.of(_objects(Masks.read(path).ids, year))


def _objects(ids: UInt16[np.ndarray, "height width"], year: Year) -> Ids:
    """The objects of a mask as the year counts them: in 2016 everything that is not background is one."""
    return (ids > 0).astype(np.uint8) if year == "2016" else ids


def _not_given(masks: Sequence[tuple[Path, Ids]], first: Ids) -> dict[Path, list[int]]:
    """The ids of each mask that the first annotation does not show."""
    given = {0, *_present(first)}
    strange = {path: [i for i in _present(ids) if i not in given] for path, ids in masks}
    return {path: ids for path, ids in strange.items() if ids}


def _present(ids: Ids) -> list[int]:
    return np.flatnonzero(np.bincount(ids.ravel())).tolist()  # several times faster than np.unique


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:5])) + (" ..." if len(ids) > 5 else "")


def _rounded(scores: Any) -> dict[str, float]:
    return {name: round(float(value), 6) for name, value in vars(scores).items()}
