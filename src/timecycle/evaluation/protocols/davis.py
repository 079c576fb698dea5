"""DAVIS-2016 and DAVIS-2017 (validation): masks of the first frame are given; J and F of the others are scored.

ROOT/JPEGImages/480p/CLIP/00000.jpg        ROOT/Annotations/480p/CLIP/00000.png
ROOT/ImageSets/2017/val.txt                one name per line (2017; also 2016 in the joint release)
ROOT/ImageSets/480p/val.txt                "/JPEGImages/480p/CLIP/00000.jpg /Annotations/480p/CLIP/00000.png" (2016)

2016 has one object per clip, whatever its value in the masks; 2017 numbers its objects and averages over them.
Masks that would silently score low are refused: 2017 masks in colours that have no id, 2016 masks of several objects or
without a background. Ids of 2017 that are not in the first annotation count as background, with a warning.
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
from timecycle.evaluation.benchmark import Clip, Scores, choose_clips
from timecycle.evaluation.metrics.masks import ObjectScores, average_objects, score_objects
from timecycle.evaluation.protocols.dataset import find_folder, find_images, first_and_count, read_clip_names
from timecycle.evaluation.protocols.propagated_labels import propagate_labels
from timecycle.labels import Masks
from timecycle.labels.mask_file import colours_in
from timecycle.progress import OnProgress

Year = Literal["2016", "2017"]
Ids = Integer[np.ndarray, "height width"]

CLIPS: Mapping[Year, int] = {"2016": 20, "2017": 30}  # in the validation sets
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
    def ground_truth_files(self) -> list[Path]:
        return [path for clip in self.clips for path in self._annotations(clip)]

    predict_clip = staticmethod(propagate_labels)

    def score(self, predictions: Path, *, progress: OnProgress | None = None) -> Scores:
        """Score J and F of every object over frames 1 to N-2; overall scores average objects, not clips."""
        all_objects: list[ObjectScores] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        unknown: dict[Path, list[int]] = {}
        for done, clip in enumerate(self.clips, start=1):
            ground_truth = [(path, _objects(Masks.read(path).ids, self.year)) for path in self._annotations(clip)]
            masks = self._predicted(clip, predictions / clip.name, dict(ground_truth))
            unknown |= _unknown_ids(masks, ground_truth[0][1])
            objects = score_objects(*(np.stack([ids for _, ids in side]) for side in (masks, ground_truth)))
            all_objects += objects
            per_sequence[clip.name] = {
                **_rounded(average_objects(objects)),
                "objects": len(objects),
                "frames": len(ground_truth),
                "J_per_frame": np.mean([one.j for one in objects], axis=0).round(4).tolist(),
                "F_per_frame": np.mean([one.f for one in objects], axis=0).round(4).tolist(),
            }
            if progress:
                progress(done, len(self.clips))
        if unknown:
            path, ids = next(iter(unknown.items()))
            others = f", as have {len(unknown) - 1} other masks" if len(unknown) > 1 else ""
            log.warning(
                "%s has ids that the first annotation lacks (%s)%s: they count as background",
                path,
                _first_few(ids),
                others,
            )
        return Scores(overall=_rounded(average_objects(all_objects)), per_sequence=per_sequence)

    def _predicted(self, clip: Clip, folder: Path, ground_truth: Mapping[Path, Ids]) -> list[tuple[Path, Ids]]:
        """Read the predicted mask of every frame; those of frames that are not scored may be missing."""
        paths = find_images(
            folder, what="predicted masks", remedy="the masks of a sequence are in a folder of its name"
        )
        files = {path.stem: path for path in paths}
        # The protocol does not score the first and the last frame.
        missing = [path.name for path in list(ground_truth)[1:-1] if path.stem not in files]
        if missing:
            raise LabelError(
                f"{folder} lacks {first_and_count(missing)}",
                remedy=f"give one mask per frame, named like the {len(ground_truth)} annotations of {clip.name}",
            )
        masks = []
        for annotation, true_ids in ground_truth.items():
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
                raise LabelError(f"{path} has {len(values)} values: {_first_few(values)}", remedy=_ONE_OBJECT)
        elif colours_in([path]):
            raise LabelError(
                f"{path} shows its objects in colours that are not in DAVIS's palette: their ids cannot be known",
                remedy="save the masks as palette PNGs with the ids of the annotations",
            )
        return _objects(ids, self.year)

    def _annotations(self, clip: Clip) -> tuple[Path, ...]:
        return find_images(self.root / "Annotations" / "480p" / clip.name, what="annotations")


def find_davis(root: Path, *, year: Year | None = None, names: Sequence[str] = ()) -> Davis:
    """Find the validation set in `root`; DAVIS-2017 where both years are listed and none is asked for."""
    images, annotations = (
        find_folder(root / part / "480p", what=what)
        for part, what in (("JPEGImages", "DAVIS frames"), ("Annotations", "DAVIS annotations"))
    )
    year, clip_names = _list_clips(root, year)
    if len(clip_names) != CLIPS[year] and not names:
        raise SettingsError(
            f"{root} lists {len(clip_names)} sequences but DAVIS-{year} val has {CLIPS[year]}",
            remedy="restore ImageSets from the release; to evaluate some of the sequences, pass --sequences",
        )
    clips = []
    for name in choose_clips(clip_names, names):
        frames = find_images(images / name, what=f"frames of {name}, one of {CLIPS[year]} sequences")
        ground_truth = find_images(annotations / name, what=f"annotations of {name}, one of {CLIPS[year]} sequences")
        if [path.stem for path in frames] != [path.stem for path in ground_truth]:
            raise LabelError(
                f"{name} has {len(frames)} frames in {images / name} but {len(ground_truth)} annotations in "
                f"{annotations / name}, or they have other names",
                remedy="restore the sequence from the release: every frame is annotated",
            )
        clips.append(Clip(name=name, frames=frames, read_annotation=partial(_first_mask, ground_truth[0], year)))
    return Davis(year, root, tuple(clips))


def _list_clips(root: Path, year: Year | None) -> tuple[Year, list[str]]:
    years: tuple[Year, ...] = (year,) if year else ("2017", "2016")
    tried = []
    for candidate in years:
        for name in _LISTS[candidate]:
            path = root / "ImageSets" / name
            tried.append(str(path))
            if path.is_file():
                return candidate, read_clip_names(path)
    raise SettingsError(
        f"{root} has no list of the DAVIS validation sequences: none of {', '.join(tried)}",
        remedy="ROOT is the folder that holds JPEGImages, Annotations and ImageSets",
    )


def _first_mask(path: Path, year: Year) -> Masks:
    return Masks.of(_objects(Masks.read(path).ids, year))


def _objects(ids: UInt16[np.ndarray, "height width"], year: Year) -> Ids:
    """Return the object ids of a mask; in 2016 everything that is not background is one object."""
    return (ids > 0).astype(np.uint8) if year == "2016" else ids


def _unknown_ids(masks: Sequence[tuple[Path, Ids]], first_annotation: Ids) -> dict[Path, list[int]]:
    """Return the ids of each mask that the first annotation lacks."""
    annotated = {0, *_present(first_annotation)}
    unknown = {path: [i for i in _present(ids) if i not in annotated] for path, ids in masks}
    return {path: ids for path, ids in unknown.items() if ids}


def _present(ids: Ids) -> list[int]:
    return np.flatnonzero(np.bincount(ids.ravel())).tolist()  # several times faster than np.unique


def _first_few(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:5])) + (" ..." if len(ids) > 5 else "")


def _rounded(scores: Any) -> dict[str, float]:
    return {name: round(float(value), 6) for name, value in vars(scores).items()}
