"""Correction intervals: the frames that corrections control, between the annotated frames around them.

A correction concerns the objects on it. Its interval ends at the nearest frames on which all of these objects are
annotated. Frames inside that annotate other objects keep constraining those. The labels at both ends do not change. An
object that was only propagated to an end starts from there as if it were annotated, so its confidence in the interval
is limited by its confidence at that end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from timecycle.confidence.fusion import UNSEEN, Confidence, ConfidenceConfig, state_of
from timecycle.labels import Labels
from timecycle.labels.space import Objects
from timecycle.model.encoder import Encoder
from timecycle.propagation.pass_cache import PassCache
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import LabelledFrame, count_steps, propagate, space_of, with_confidence
from timecycle.propagation.workfolder import WorkFolder
from timecycle.review.queue import annotated_neighbours
from timecycle.video import Video, VideoSlice

ConfidenceOnFrame = Callable[[int], Mapping[str, float]]  # of each object that was propagated to an annotated frame


@dataclass(frozen=True, eq=False)
class Interval:
    """Frames that some corrections control, in a part of the video that ends with the annotated frames around them."""

    corrected: Sequence[int]
    first: int
    last: int
    video: VideoSlice
    start: int  # of the part
    annotations: Mapping[int, Labels]  # indices count from the start of the part
    steps: int  # over both passes
    end_confidence: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # of objects not annotated there


def intervals_of(
    video: Video,
    corrections: Mapping[int, Labels],
    current_labels: Callable[[int], Labels],
    annotated: Mapping[int, Objects],
    config: PropagateConfig,
    *,
    confidence: ConfidenceOnFrame = lambda _: {},
) -> list[Interval]:
    """Return the intervals of some corrections; those that overlap become one.

    `current_labels` returns the labels that a frame has now, `annotated` gives the objects annotated on each annotated
    frame, `confidence` that of objects that were propagated to one. If labels are propagated forward only, a correction
    changes nothing before it.
    """
    others = {index: objects for index, objects in annotated.items() if index not in corrections}
    forward = config.direction == "forward"

    def interval(before: int, after: int, corrected: Sequence[int]) -> Interval:
        first, last = (corrected[0] if forward else max(before + 1, 0)), min(after - 1, len(video) - 1)
        start, stop = max(before, 0), min(after if forward else after + 1, len(video))
        ends = [end for end in (before, after) if start <= end < stop]
        annotations = {index: corrections[index] for index in corrected}
        annotations |= {end: current_labels(end).as_exhaustive() for end in ends}
        inside = {index: objects for index, objects in others.items() if before < index < after and index >= start}
        annotations |= {index: current_labels(index).restricted_to(objects) for index, objects in inside.items()}
        part = VideoSlice(video, start, stop)
        shifted = {index - start: labels for index, labels in sorted(annotations.items())}
        end_confidence = {
            end: {name: value for name, value in confidence(end).items() if name not in objects}
            for end in ends
            if (objects := others[end]) is not None
        }
        steps = count_steps(part, shifted, config)
        return Interval(corrected, first, last, part, start, shifted, steps, end_confidence)

    return [interval(*bounds) for bounds in _bounds(corrections, others, len(video))]


def _bounds(
    corrections: Mapping[int, Labels], others: Mapping[int, Objects], frames: int
) -> list[tuple[int, int, list[int]]]:
    """Return the annotated frames that end each interval, and the corrections between them."""
    everything = frozenset(space_of(corrections).objects).union(*(objects for objects in others.values() if objects))

    def alone(index: int) -> tuple[int, int, list[int]]:
        annotated = corrections[index].annotated_objects()
        objects = everything if annotated is None else annotated
        ends = {frame for frame, there in others.items() if there is None or objects <= there}
        return (*annotated_neighbours(index, ends, frames), [index])

    bounds: list[tuple[int, int, list[int]]] = []
    for before, after, corrected in sorted(map(alone, corrections)):
        if bounds and before < bounds[-1][1]:
            first, last, earlier = bounds.pop()
            bounds.append((first, max(after, last), sorted([*earlier, *corrected])))
        else:
            bounds.append((before, after, corrected))
    return bounds


def propagate_interval(
    interval: Interval,
    *,
    encoder: Encoder,
    config: PropagateConfig,
    confidence: ConfidenceConfig | None,
    work: WorkFolder | None = None,
    cache: PassCache | None = None,
    on_step: Callable[[], None] | None = None,
) -> Iterator[LabelledFrame]:
    """Propagate the annotations in and around an interval; yields the frames that corrections control."""
    frames = propagate(
        interval.video,
        interval.annotations,
        encoder=encoder,
        config=config,
        confidence=confidence,
        work=work,
        cache=cache,
        on_step=on_step,
    )
    for frame in frames:
        if interval.first <= frame.index + interval.start <= interval.last:
            in_video = replace(frame, index=frame.index + interval.start)
            yield _limited(in_video, interval, forward=config.direction == "forward")


def _limited(frame: LabelledFrame, interval: Interval, *, forward: bool) -> LabelledFrame:
    """Multiply the confidence of objects by their confidence at the ends of the interval they were propagated from."""
    if frame.confidence is None or frame.label_map is None:
        return frame
    factors = {
        name: _start_confidence(interval, name, frame.index, forward=forward)
        for name, one in frame.confidence.objects.items()
        if not one.annotated
    }
    if all(factor == 1 for factor in factors.values()):
        return frame
    space = space_of(interval.annotations)
    extent = space.extent(frame.label_map.values)
    lost = extent.new_tensor([1 - factors.get(name, 1.0) for name in space.objects])
    objects = {}
    for name, one in frame.confidence.objects.items():
        value = one.value * factors.get(name, 1.0)
        kept = one.annotated or one.state in UNSEEN
        objects[name] = replace(one, value=value, state=one.state if kept else state_of(value))
    cells = frame.confidence.cells * (1 - (extent * lost).sum(dim=-1)).clamp(0, 1)
    limited = Confidence(objects, cells, frame.confidence.grid)
    return replace(frame, confidence=limited, labels=with_confidence(frame.labels, limited))


def _start_confidence(interval: Interval, name: str, index: int, *, forward: bool) -> float:
    """Interpolate the confidence of an object between the nearest frames on which the interval has its labels."""
    starts = {end: values[name] for end, values in interval.end_confidence.items() if name in values}
    for at, labels in interval.annotations.items():
        objects = labels.annotated_objects()
        if objects is None or name in objects:
            starts.setdefault(at + interval.start, 1.0)
    before, after = annotated_neighbours(index, starts.keys(), -1)
    if after == -1 or forward:
        return starts.get(before, 1.0)
    if before == -1:
        return starts[after]
    share = (index - before) / (after - before)
    return (1 - share) * starts[before] + share * starts[after]
