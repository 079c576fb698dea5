"""The video predictor: names, arguments and returned values are those of SAM 2's `SAM2VideoPredictor`.

Logits are +10 inside of an object and -10 outside: scripts compare them with 0. An object of which nothing is known on
a frame has -1024 there, as in SAM 2.
"""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt16
from torch import Tensor

import timecycle as tc
from timecycle.device import pick_device
from timecycle.errors import LabelError, SettingsError
from timecycle.integrations.remedies import telling_without_commands
from timecycle.integrations.sam2_session.frames import OrderedFrames
from timecycle.integrations.sam2_session.prompts import (
    Clicks,
    Image,
    annotation_of,
    nothing_to_correct,
    paint,
    parse_clicks,
    region_of_mask,
    start_of_box,
)
from timecycle.integrations.sam2_session.state import (
    State,
    check_id,
    frame_size,
    frames_to_process,
    frames_to_yield,
    number_of,
    renew_ids,
    tracked_ids,
)
from timecycle.labels.file import note

Logits = Float[Tensor, "objects 1 height width"]
Output = tuple[int, list[Any], Logits]

_INSIDE, _OUTSIDE, _UNKNOWN = 10.0, -10.0, -1024.0
_OF_SAM2 = frozenset({"mode", "hydra_overrides_extra", "apply_postprocessing", "vos_optimized"})


class VideoPredictor:
    """Propagates the prompts of a session through its video. Several sessions may share one predictor."""

    def __init__(
        self,
        encoder: tc.Encoder,
        config: tc.PropagateConfig,
        *,
        confidence: tc.ConfidenceConfig | None,
        device: torch.device,
    ) -> None:
        self.encoder, self.config, self.confidence, self.device = encoder, config, confidence, device

    @classmethod
    def from_pretrained(cls, model_id: str, **options: Any) -> "VideoPredictor":
        """Make the predictor; SAM 2's weights, which `model_id` names, are not loaded."""
        return build_sam2_video_predictor(None, model_id, **options)

    @telling_without_commands()
    def init_state(
        self,
        video_path: str | Path | np.ndarray | tc.Video,
        offload_video_to_cpu: bool = False,
        offload_state_to_cpu: bool = False,
        async_loading_frames: bool = False,
    ) -> State:
        """Begin a session: open a video file or a folder of images. Frames are read when they are needed."""
        del offload_video_to_cpu, offload_state_to_cpu, async_loading_frames  # neither is kept in memory
        if isinstance(video_path, bytes):
            raise LabelError("the video was passed as bytes", remedy="write them to a file and pass its path")
        video = video_path if isinstance(video_path, tc.Video) else tc.open_video(video_path)
        state: State = {
            "video": video,
            "num_frames": len(video),
            "video_height": video.size.height_px,
            "video_width": video.size.width_px,
            "device": self.device,
            "storage_device": torch.device("cpu"),
        }
        self.reset_state(state)
        return state

    def reset_state(self, inference_state: State) -> None:
        """Forget all objects, prompts and results; the video stays open."""
        inference_state |= {
            "obj_ids": [],
            "obj_id_to_idx": {},
            "obj_idx_to_id": {},
            "numbers": {},  # of the objects in label maps, by object id: a number is never given twice
            "regions": {},  # prompts as regions, by frame and number
            "clicks": {},  # prompts that clicks may still correct, by frame and number
            "tracked": {},  # compressed ids of frames that were yielded
            "confidence": {},  # by frame and object id
        }

    def add_new_mask(self, inference_state: State, frame_idx: int, obj_id: Any, mask: Any) -> Output:
        """Annotate an object on a frame; an empty mask says that it is absent there."""
        self._check_frame(inference_state, frame_idx)
        region = region_of_mask(mask, frame_size(inference_state))
        number = number_of(inference_state, obj_id)
        inference_state["regions"].setdefault(frame_idx, {})[number] = region
        inference_state["clicks"].setdefault(frame_idx, {}).pop(number, None)
        return self._output(inference_state, frame_idx)

    @telling_without_commands()
    def add_new_points_or_box(
        self,
        inference_state: State,
        frame_idx: int,
        obj_id: Any,
        points: Any = None,
        labels: Any = None,
        clear_old_points: bool = True,
        normalize_coords: bool = True,
        box: Any = None,
    ) -> Output:
        """Annotate the object in a box, or correct its mask by clicks; coordinates are pixels, or shares of the frame.

        normalize_coords: False if coordinates are shares of the frame's width and height, from 0 to 1.
        """
        state = inference_state
        self._check_frame(state, frame_idx)
        if points is None and box is None:
            raise LabelError(
                "neither points nor a box were passed", remedy="pass box=[x0, y0, x1, y1], with points or not"
            )
        if box is not None and not clear_old_points:
            raise LabelError("a box was added to earlier points", remedy="pass the box and all points in one call")
        height, width = frame_size(state)
        scale = (1.0, 1.0) if normalize_coords else (float(width), float(height))
        inside, outside = parse_clicks(points, labels, scale=scale, size=(height, width))
        image = state["video"][frame_idx].image
        clicks = (
            start_of_box(image, box, scale=scale) if box is not None else self._correctable(state, frame_idx, obj_id)
        )
        if not clear_old_points:
            inside, outside = [*clicks.inside, *inside], [*clicks.outside, *outside]
        self._keep(state, frame_idx, obj_id, replace(clicks, inside=inside, outside=outside), image)
        return self._output(state, frame_idx)

    def add_new_points(self, *args: Any, **kwargs: Any) -> Output:
        """The older name of `add_new_points_or_box`."""
        return self.add_new_points_or_box(*args, **kwargs)

    def clear_all_prompts_in_frame(
        self, inference_state: State, frame_idx: int, obj_id: Any, need_output: bool = True
    ) -> Output | None:
        """Remove the prompts of one object on one frame."""
        number = inference_state["numbers"].get(obj_id)
        for prompts in ("regions", "clicks"):
            by_number = inference_state[prompts].get(frame_idx, {})
            by_number.pop(number, None)
            if not by_number:
                inference_state[prompts].pop(frame_idx, None)
        return self._output(inference_state, frame_idx) if need_output else None

    def remove_object(
        self, inference_state: State, obj_id: Any, strict: bool = False, need_output: bool = True
    ) -> tuple[list[Any], list[tuple[int, Logits]]]:
        """Remove an object with all its prompts; return the others, and the frames on which it had prompts."""
        state = inference_state
        if obj_id not in state["numbers"]:
            if strict:
                raise LabelError(f"there is no object {obj_id}", remedy=f"choose one of {state['obj_ids']}")
            return state["obj_ids"], []
        if len(state["obj_ids"]) == 1:
            self.reset_state(state)
            return state["obj_ids"], []
        number = state["numbers"][obj_id]
        prompted = [frame for frame, regions in sorted(state["regions"].items()) if number in regions]
        for frame in prompted:
            self.clear_all_prompts_in_frame(state, frame, obj_id, need_output=False)
        del state["numbers"][obj_id]
        renew_ids(state)
        outputs = [(frame, self._output(state, frame)[2]) for frame in prompted] if need_output else []
        return state["obj_ids"], outputs

    def propagate_in_video(
        self,
        inference_state: State,
        start_frame_idx: int | None = None,
        max_frame_num_to_track: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Output]:
        """Yield (frame index, object ids, logits) of frames from the start on, or backward in time with `reverse`.

        The start is by default the earliest frame with a prompt. All prompts count, also those that lie ahead.
        """
        with telling_without_commands():
            yield from self._propagate(inference_state, start_frame_idx, max_frame_num_to_track, reverse=reverse)

    def _propagate(
        self, state: State, start_frame: int | None, max_frames: int | None, *, reverse: bool
    ) -> Iterator[Output]:
        annotations = self._annotations(state)
        start = min(annotations) if start_frame is None else start_frame
        self._check_frame(state, start)
        wanted = frames_to_yield(start, max_frames, state["num_frames"], reverse=reverse)
        if not wanted:
            return
        first, last = frames_to_process(annotations, min(wanted), max(wanted))
        order = range(last, first - 1, -1) if reverse else range(first, last + 1)
        labels = {order.index(frame): one for frame, one in annotations.items() if frame in order}
        frames = tc.propagate(
            OrderedFrames(state["video"], order),
            labels,
            encoder=self.encoder,
            config=self.config,
            confidence=self.confidence,
        )
        names = {str(number): obj_id for obj_id, number in state["numbers"].items()}
        for frame in frames:
            index = order[frame.index]
            if index in wanted:
                state["tracked"][index] = zlib.compress(frame.labels.ids.tobytes(), 1)
                if frame.confidence is not None:
                    found = frame.confidence.objects.items()
                    state["confidence"][index] = {names[name]: one.value for name, one in found}
                yield index, list(names.values()), self._logits(frame.labels.ids, list(map(int, names)))
            if index == wanted[-1]:
                return

    def _check_frame(self, state: State, frame_idx: int) -> None:
        if not isinstance(frame_idx, int | np.integer) or not 0 <= frame_idx < state["num_frames"]:
            raise LabelError(
                f"frame {frame_idx} is not in {state['video'].name}",
                remedy=f"number frames from 0 to {state['num_frames'] - 1}",
            )

    def _correctable(self, state: State, frame_idx: int, obj_id: Any) -> Clicks:
        """Return what clicks on this object and frame correct: its prompt, or its result of the last propagation."""
        check_id(obj_id)
        number = state["numbers"].get(obj_id)
        if number in state["clicks"].get(frame_idx, {}):
            clicks: Clicks = state["clicks"][frame_idx][number]
            return clicks
        region = state["regions"].get(frame_idx, {}).get(number)
        if region is None and number is not None and frame_idx in state["tracked"]:
            region = tracked_ids(state, frame_idx) == number
        if region is None or not region.any():
            raise nothing_to_correct(obj_id, frame_idx)
        return Clicks(region, None)

    def _keep(self, state: State, frame_idx: int, obj_id: Any, clicks: Clicks, image: Image) -> None:
        region = clicks.region(image)
        number = number_of(state, obj_id)
        state["clicks"].setdefault(frame_idx, {})[number] = clicks
        state["regions"].setdefault(frame_idx, {})[number] = region

    def _annotations(self, state: State) -> dict[int, tc.Masks]:
        """Return the annotated frames; every object must be annotated on one of them."""
        prompted = {number for regions in state["regions"].values() for number in regions}
        for obj_id, number in state["numbers"].items():
            if number not in prompted:
                raise LabelError(f"object {obj_id} has no prompt", remedy="add one, or remove_object")
        if not prompted:
            raise LabelError(
                "there is no prompt in this session", remedy="add_new_mask, or add_new_points_or_box first"
            )
        objects = {number: obj_id for obj_id, number in state["numbers"].items()}
        return {frame: annotation_of(regions, objects, frame) for frame, regions in sorted(state["regions"].items())}

    def _output(self, state: State, frame_idx: int) -> Output:
        """Return the masks of all objects on a frame: prompts, otherwise results, otherwise unknown."""
        ids = tracked_ids(state, frame_idx) if frame_idx in state["tracked"] else np.zeros(frame_size(state), np.uint16)
        regions = state["regions"].get(frame_idx, {})
        ids[np.isin(ids, list(regions))] = 0
        paint(ids, regions)
        numbers = list(state["numbers"].values())
        logits = self._logits(ids, numbers)
        if frame_idx not in state["tracked"]:
            logits[[number not in regions for number in numbers]] = _UNKNOWN
        return frame_idx, state["obj_ids"], logits

    def _logits(self, ids: UInt16[np.ndarray, "height width"], numbers: list[int]) -> Logits:
        there = torch.from_numpy(np.stack([ids == number for number in numbers]))[:, None]
        return torch.where(there, _INSIDE, _OUTSIDE).to(self.device)


@telling_without_commands()
def build_sam2_video_predictor(
    config_file: str | None = None,
    ckpt_path: str | Path | None = None,
    device: str | torch.device = "auto",
    *,
    encoder: tc.Encoder | str | Path | None = None,
    config: tc.PropagateConfig | str = "default",
    confidence: bool = True,
    **options: Any,
) -> VideoPredictor:
    """Make the predictor. SAM 2's configuration and checkpoint are accepted and not used: no network of SAM 2 runs.

    device: auto, cpu, cuda or mps. encoder, config: as for `propagate`.
    confidence: whether `inference_state["confidence"]` is filled, which takes some time.
    """
    unknown = sorted(options.keys() - _OF_SAM2)
    if unknown:
        raise SettingsError(f"there is no option {unknown[0]!r}", remedy="pass encoder, config, confidence or device")
    if config_file or ckpt_path:
        note(f"{ckpt_path or config_file} is not used: masks are propagated by matching, without the network of SAM 2")
    chosen = torch.device(device).type if device != "auto" else "auto"
    picked = pick_device(chosen)  # type: ignore[arg-type]  # refused there if it is none
    loaded = tc.load_encoder(*(() if encoder is None else (encoder,)), device=picked.type)  # type: ignore[arg-type]
    return VideoPredictor(
        loaded,
        tc.propagate_config(config) if isinstance(config, str) else config,
        confidence=tc.ConfidenceConfig() if confidence else None,
        device=picked,
    )


def build_sam2_video_predictor_hf(model_id: str, **options: Any) -> VideoPredictor:
    """Make the predictor as `build_sam2_video_predictor` does; nothing is downloaded."""
    return build_sam2_video_predictor(None, model_id, **options)
