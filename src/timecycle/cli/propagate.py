"""`timecycle propagate`"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from timecycle.cli.console import out, progress
from timecycle.cli.options import (
    Abstain,
    AllowDamaged,
    Device,
    Encoder,
    LabelFilesOption,
    Out,
    Precision,
    Preset,
    Settings,
    Unjudged,
    encoder_from_anywhere,
    refuse_swapped,
    trust_of,
)
from timecycle.config import propagate_config
from timecycle.errors import LabelError, SettingsError
from timecycle.extras import need
from timecycle.labels import Coordinates, Labels, Masks, Texture, path_of, read_labels, striped
from timecycle.labels.box import Box, Inside, masks_of_boxes, object_in_box, whole_box
from timecycle.labels.names import names_beside, names_of, parse_names
from timecycle.labels.notes import note
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.propagate import check_labels, space_of
from timecycle.runs import Origin, Task, refuse_inside, run
from timecycle.video import Video, open_video


@dataclass(frozen=True, kw_only=True)
class Propagate:
    """Carry the labels of some frames through the whole video.

    For example: timecycle propagate dog.mp4 first.png -o out

    or: timecycle propagate frames/ 0=first.png 50=cat.png -o out

    or: timecycle propagate dog.mp4 --box 120,80,260,240 --box 20,90,80,200 -o out
    """

    video: Annotated[Positional[str], arg(metavar="VIDEO", help="a video file, a folder of images or a quoted glob")]
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="LABELS", help="a file (the first frame), FRAME=FILE, or a folder of files named by frame number"),
    ] = ()
    out: Out
    box: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="x0,y0,x1,y1", help="annotate what is in a box of frame 0 (needs OpenCV); again for each object"),
    ] = ()
    box_as_is: Annotated[bool, arg(help="annotate the whole of each --box, its background too")] = False
    texture: Annotated[
        str | None, arg(metavar="stripes|FILE", help="paint stripes on the labelled object, or an RGBA image")
    ] = None
    coordinates: Annotated[bool, arg(help="carry every pixel's place on frame 0: long-range flow")] = False
    kind: Annotated[
        Literal["masks", "parts", "keypoints", "texture", "coordinates"] | None,
        arg(help="what the labels are; by default keypoints for CSV files and masks for images"),
    ] = None
    names: Annotated[
        tuple[str, ...],
        arg(metavar="ID=NAME ...", help="what objects are called, as 1=camel; or a names.json beside the labels"),
    ] = ()
    complete: Annotated[bool, arg(help="labelled frames show every object: one that is not drawn is not there")] = False
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "default"
    set: Settings = ()
    fps: Annotated[float | None, arg(help="frames per second of a folder of images (24)")] = None
    allow_damaged: AllowDamaged = False
    device: Device = "auto"
    precision: Precision = "fp32"
    abstain: Abstain = 0.0
    unjudged: Unjudged = False
    label_files: LabelFilesOption = "palette"
    resume: Annotated[bool, arg(help="go on with an interrupted run")] = False
    overwrite: Annotated[bool, arg(help="replace what an earlier run wrote")] = False

    def __call__(self) -> None:
        refuse_swapped("propagate", self.video, self.labels, "-o", self.out)
        config = propagate_config(self.preset, self.set)
        trust = trust_of(abstain=self.abstain, unjudged=self.unjudged)
        with open_video(self.video, fps=self.fps, allow_damaged=self.allow_damaged) as video:
            labels = check_labels(video, self._read_labels(video))  # before anything is loaded or announced
            encoder = load_encoder(self.encoder, device=self.device, precision=self.precision)
            origin = Origin(
                video=str(Path(self.video).absolute()),
                fps=self.fps,
                encoder=encoder_from_anywhere(self.encoder),
                device=self.device,
                precision=self.precision,
            )
            task = Task(
                video=video,
                labels=labels,
                encoder=encoder,
                config=config,
                trust=trust,
                names=self._names(labels),
                label_files=self.label_files,
                origin=origin,
            )
            with progress("propagating") as show:
                done = run(task, self.out, resume=self.resume, overwrite=self.overwrite, progress=show)
        if done.already:
            out.print(f"this run is finished: {done.frames} frames in {done.folder}")
        else:
            out.print(f"{done.frames} frames in {done.seconds:.1f} s -> {done.folder}")
        out.print(f"look at {done.folder / 'contact.png'} and {done.folder / 'overlay.mp4'}")

    def _read_labels(self, video: Video) -> dict[int, Labels]:
        self._refuse_contradictions()
        refuse_inside(self.out, [path_of(label) for label in self.labels])
        height, width = video.size.height_px, video.size.width_px
        if self.coordinates:
            return {0: Coordinates.of_image(height, width)}
        if self.texture not in (None, "stripes"):
            return {0: Texture.read(Path(str(self.texture)))}
        if self.box:
            labels: dict[int, Labels] = {0: self._in_boxes(video)}
        else:
            labels = read_labels(
                self.labels,
                kind=self.kind,
                complete=self.complete,
                numbers=video.numbers,
                size=video.size.shape,
            )
        return _striped(labels) if self.texture == "stripes" else labels

    def _names(self, labels: dict[int, Labels]) -> dict[str, str]:
        """Names given by hand, then those in a file beside the labels; of objects that are labelled."""
        files = [path_of(label) for label in self.labels]
        beside, given = names_beside(files), parse_names(self.names)
        return names_of(space_of(labels).objects, beside, given)

    def _in_boxes(self, video: Video) -> Masks:
        boxes = [_parse_box(text) for text in self.box]
        if self.box_as_is:
            return masks_of_boxes([whole_box(video.size.height_px, video.size.width_px, box) for box in boxes])
        try:
            need("cv2", extra="assist")
        except SettingsError as error:
            raise SettingsError(
                "OpenCV is not installed, which finds the object in a --box",
                remedy=f"{error.remedy}, or pass --box-as-is to annotate the whole rectangle",
            ) from error
        image = video[0].image
        found = [object_in_box(image, box) for box in boxes]
        self._note_outlines([text for text, box, one in zip(self.box, boxes, found, strict=True) if _is_part(one, box)])
        return masks_of_boxes(found)

    def _note_outlines(self, boxes: Sequence[str]) -> None:
        if boxes:
            note(
                f"the outline of the object in the box {' and '.join(boxes)} was found by GrabCut: look at the first "
                f"frame of {self.out / 'contact.png'}; if it is wrong, draw a mask, or pass --box-as-is"
            )

    def _refuse_contradictions(self) -> None:
        """Labels come from one place: an option that would be ignored is refused."""
        sources = {
            "LABELS": bool(self.labels),
            "--box": bool(self.box),
            "--coordinates": self.coordinates,
            "--texture FILE": self.texture not in (None, "stripes"),
        }
        used = [name for name, given in sources.items() if given]
        if not used:
            raise LabelError(
                "no labels were given",
                remedy="give a mask or a CSV of points as LABELS, or --box x0,y0,x1,y1",
            )
        if self.coordinates and self.texture == "stripes":
            used.append("--texture stripes")
        if not self.labels:  # these say how LABELS are read
            used += [name for name, given in (("--kind", self.kind), ("--complete", self.complete)) if given]
        if self.box_as_is and not self.box:
            raise LabelError("--box-as-is was given without --box", remedy="give --box x0,y0,x1,y1 beside it")
        if len(used) > 1:
            raise LabelError(f"{used[0]} and {used[1]} were both given", remedy=f"leave out {used[1]}")


def _striped(labels: dict[int, Labels]) -> dict[int, Labels]:
    """Stripes on the object of the one labelled frame."""
    painted: dict[int, Labels] = {i: striped(masks) for i, masks in labels.items() if isinstance(masks, Masks)}
    if len(painted) != 1 or len(labels) != 1:
        raise LabelError(
            "stripes are painted on the mask of one frame", remedy="give one mask as LABELS, or --box x0,y0,x1,y1"
        )
    return painted


def _is_part(inside: Inside, box: Box) -> bool:
    """Whether an object is less than its whole box."""
    height, width = inside.shape
    return not np.array_equal(inside, whole_box(height, width, box))


def _parse_box(text: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise LabelError(
            f"{text!r} is not a box", remedy="write --box x0,y0,x1,y1 in pixels, for example 120,80,260,240"
        ) from error
    return x0, y0, x1, y1
