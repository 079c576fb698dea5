"""`timecycle propagate`"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from timecycle.cli.console import Result, progress, say
from timecycle.cli.options import (
    FormatOption,
    Fps,
    Kind,
    Overwrite,
    RunOptions,
    ScaleOption,
    VideoArgument,
    log_video,
    refuse_swapped,
)
from timecycle.errors import LabelError, OutputError, SettingsError
from timecycle.extras import import_extra
from timecycle.formats import matte
from timecycle.formats.reading import read_any
from timecycle.formats.registry import find_format, write_file
from timecycle.formats.video_labels import facts_of
from timecycle.labels import Coordinates, Labels, Masks, Texture, path_of, striped
from timecycle.labels.box import Box, masks_of_boxes, object_in_box, whole_box
from timecycle.labels.file import note
from timecycle.labels.grab_cut import Region
from timecycle.labels.names import names_of, parse_names
from timecycle.propagation.video import check_labels, space_of
from timecycle.runs.exporting import export_path, labels_of_run
from timecycle.runs.folder import OutputFolder
from timecycle.runs.measurements import MeasurementConfig, as_scale, parse_pairs
from timecycle.runs.opened import Run
from timecycle.runs.run import Origin, RunSpec, refuse_inside, run
from timecycle.video import Video, open_video


@dataclass(frozen=True, kw_only=True)
class Propagate(RunOptions):
    """Propagate the annotations of some frames through the whole video.

    Examples:
      timecycle propagate dog.mp4 first.png -o out
      timecycle propagate frames/ 0=first.png 50=cat.png -o out
      timecycle propagate dog.mp4 --box 120,80,260,240 --box 20,90,80,200 -o out
    """

    video: VideoArgument
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(
            metavar="LABELS ...",
            help="a file (of the first frame), FRAME=FILE, a folder of files named by frame number, or a file of "
            "another tool (see `timecycle convert --help`)",
        ),
    ] = ()
    out: Annotated[
        Path | None, arg(aliases=["-o"], metavar="FOLDER", help="folder to write to; by default VIDEO_timecycle")
    ] = None
    box: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(
            metavar="x0,y0,x1,y1",
            help="annotate the object in a box of frame 0 (needs OpenCV); repeat it for more objects",
        ),
    ] = ()
    box_as_is: Annotated[bool, arg(help="annotate the whole of each --box, its background too")] = False
    texture: Annotated[
        str | None, arg(metavar="stripes|FILE", help="propagate stripes painted on the object, or an RGBA image")
    ] = None
    coordinates: Annotated[bool, arg(help="propagate the position of every pixel of frame 0: long-range flow")] = False
    kind: Kind = None
    names: Annotated[
        tuple[str, ...],
        arg(metavar="ID=NAME ...", help="names of objects, as 1=camel; or a names.json beside the labels"),
    ] = ()
    exhaustive: Annotated[
        bool, arg(help="annotated frames show every object: one that is not annotated there is absent")
    ] = False
    format: FormatOption = ()
    matte: Annotated[
        Path | None, arg(metavar="FILE.mov", help="also write the video with alpha from the masks, as ProRes 4444")
    ] = None
    scale: ScaleOption = None
    pairs: Annotated[
        tuple[str, ...],
        arg(metavar="NAME:NAME ...", help="points whose distances are measured, as nose:tail; for keypoints"),
    ] = ()
    fps: Fps = None
    resume: Annotated[bool, arg(help="resume an interrupted run")] = False
    overwrite: Overwrite = False

    def __call__(self) -> Result:
        refuse_swapped("propagate", self.video, self.labels, *(() if self.out is None else ("-o", self.out)))
        config, confidence = self.config(), self.confidence()
        measurements = MeasurementConfig(as_scale(self.scale), parse_pairs(self.pairs))
        self._check_matte()
        with open_video(self.video, fps=self.fps, allow_damaged=self.allow_damaged) as video:
            given, names = self._read_labels(video)
            labels = check_labels(video, given)  # before anything is loaded or written
            log_video(video, config)
            encoder = self.load_encoder()
            origin = Origin(
                video=str(Path(self.video).absolute()),
                fps=self.fps,
                encoder=self.absolute_encoder(),
                device=self.device,
                precision=self.precision,
            )
            spec = RunSpec(
                video=video,
                labels=labels,
                encoder=encoder,
                config=config,
                confidence=confidence,
                names=names_of(space_of(labels).objects, names, parse_names(self.names)),
                label_files=self.label_files,
                measurements=measurements,
                formats=self.format,
                origin=origin,
            )
            with progress("propagating") as show:
                done = run(spec, self._folder, resume=self.resume, overwrite=self.overwrite, progress=show)
            if self.matte is not None:
                written = labels_of_run(OutputFolder(done.folder)).on_video(facts_of(video))
                write_file(written, self.matte, name=matte.FORMAT.name)
        contact, overlay = done.folder / "contact.png", done.folder / "overlay.mp4"
        review = [frame.number for frame in Run(done.folder).frames if frame.needs_review]
        what = f"this run is finished: {done.frames} frames"
        if not done.already:
            what = f"{done.frames} frames in {done.seconds:.1f} s"
        say(f"{what} -> {done.folder}{_review_hint(done.folder, len(review))}")
        say(f"look at {contact} and {overlay}")
        return {
            "folder": done.folder,
            "frames": done.frames,
            "was_finished": done.already,
            "frames_to_review": review,
            "contact_sheet": contact,
            "overlay_video": overlay,
            "matte": self.matte,
            "exports": [export_path(OutputFolder(done.folder), find_format(name)) for name in self.format],
            "measurements": table if (table := done.folder / "measurements.csv").is_file() else None,
        }

    def _check_matte(self) -> None:
        """Refuse a file for the matte that is there already, or that is no .mov, before any work is done."""
        if self.matte is None:
            return
        if self.matte.suffix.lower() not in matte.FORMAT.suffixes:
            raise SettingsError(f"{self.matte} is no .mov file", remedy="write --matte matte.mov")
        if self.matte.exists() and not (self.overwrite or self.resume):
            raise OutputError(f"{self.matte} already exists", remedy="choose another name, or pass --overwrite")

    @property
    def _folder(self) -> Path:
        """The output folder: by default named after the video, in the current folder."""
        if self.out is not None:
            return self.out
        video = Path(self.video)
        named = video.parent if "*" in video.name else video  # a glob stands for its folder
        return Path(f"{named.absolute().stem}_timecycle")

    def _read_labels(self, video: Video) -> tuple[dict[int, Labels], Mapping[str, str]]:
        """Read the labels, and the names of objects that stand in or beside their files."""
        self._refuse_contradictions()
        refuse_inside(self._folder, [path_of(label) for label in self.labels])
        height, width = video.size.height_px, video.size.width_px
        if self.coordinates:
            return {0: Coordinates.of_image(height, width)}, {}
        if self.texture not in (None, "stripes"):
            return {0: Texture.read(Path(str(self.texture)))}, {}
        names: Mapping[str, str] = {}
        if self.box:
            labels: dict[int, Labels] = {0: self._annotate_boxes(video)}
        else:
            read = read_any(self.labels, facts_of(video), kind=self.kind, exhaustive=self.exhaustive)
            labels, names = read.labels, read.names
        return (_paint_stripes(labels) if self.texture == "stripes" else labels), names

    def _annotate_boxes(self, video: Video) -> Masks:
        boxes = [_parse_box(text) for text in self.box]
        if self.box_as_is:
            return masks_of_boxes([whole_box(video.size.height_px, video.size.width_px, box) for box in boxes])
        try:
            import_extra("cv2", extra="assist")
        except SettingsError as error:
            raise SettingsError(
                "OpenCV is not installed, which finds the object in a --box",
                remedy=f"{error.remedy}, or pass --box-as-is to annotate the whole rectangle",
            ) from error
        image = video[0].image
        masks = [object_in_box(image, box) for box in boxes]
        self._note_outlines(
            [text for text, box, mask in zip(self.box, boxes, masks, strict=True) if not _fills_box(mask, box)]
        )
        return masks_of_boxes(masks)

    def _note_outlines(self, boxes: Sequence[str]) -> None:
        if boxes:
            note(
                f"the outline of the object in the box {' and '.join(boxes)} was found by GrabCut: look at the first "
                f"frame of {self._folder / 'contact.png'}; if it is wrong, annotate a mask, or pass --box-as-is"
            )

    def _refuse_contradictions(self) -> None:
        """Refuse two sources of annotations, and options that would be ignored."""
        sources = {
            "LABELS": bool(self.labels),
            "--box": bool(self.box),
            "--coordinates": self.coordinates,
            "--texture FILE": self.texture not in (None, "stripes"),
        }
        used = [name for name, is_used in sources.items() if is_used]
        if not used:
            raise LabelError(
                "no labels were given",
                remedy="give a mask or a CSV of points as LABELS, or --box x0,y0,x1,y1",
            )
        if self.coordinates and self.texture == "stripes":
            used.append("--texture stripes")
        if not self.labels:  # these say how LABELS are read
            used += [name for name, value in (("--kind", self.kind), ("--exhaustive", self.exhaustive)) if value]
        if self.box_as_is and not self.box:
            raise LabelError("--box-as-is was given without --box", remedy="give --box x0,y0,x1,y1 beside it")
        if len(used) > 1:
            raise LabelError(f"{used[0]} and {used[1]} were both given", remedy=f"leave out {used[1]}")


def _review_hint(folder: Path, count: int) -> str:
    """How many frames need review and the command to find them; nothing if none does."""
    if not count:
        return ""
    return f"; {count} need{'s' if count == 1 else ''} review: timecycle check {shlex.quote(str(folder))}"


def _paint_stripes(labels: dict[int, Labels]) -> dict[int, Labels]:
    """Paint stripes on the object of the one annotated frame."""
    if len(labels) != 1:
        raise LabelError(
            "stripes are painted on the mask of one frame", remedy="give one mask as LABELS, or --box x0,y0,x1,y1"
        )
    return {index: striped(annotation) for index, annotation in labels.items()}


def _fills_box(mask: Region, box: Box) -> bool:
    height, width = mask.shape
    return np.array_equal(mask, whole_box(height, width, box))


def _parse_box(text: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(number) for number in text.split(","))
    except ValueError as error:
        raise LabelError(
            f"{text!r} is not a box", remedy="write --box x0,y0,x1,y1 in pixels, for example 120,80,260,240"
        ) from error
    return x0, y0, x1, y1
