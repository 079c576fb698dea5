"""What corrections control: from the annotated frames before them to those after, object by object.

A correction is about the objects on it. What it controls ends at the nearest frames on which all of these are
annotated; frames between that annotate other objects constrain those, as before. At both ends labels stay as they are.
An object that was only propagated to an end starts from there as if it were annotated, so it is no surer than there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from timecycle.labels import Labels
from timecycle.labels.annotated import Objects, annotated_objects, only
from timecycle.labels.fitting import complete
from timecycle.model.encoder import Encoder
from timecycle.propagation.confidence import UNSEEN, Confidence, TrustConfig, state_of
from timecycle.propagation.passes import PassMaps
from timecycle.propagation.propagate import LabelledFrame, count_steps, propagate, space_of, with_confidence
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.workfolder import WorkFolder
from timecycle.review.queue import neighbours_of
from timecycle.video import Video, VideoPart

Sure = Callable[[int], Mapping[str, float]]  # how sure each object is on a frame


@dataclass(frozen=True, eq=False)
class Interval:
    """Frames that some corrections control, in a part of the video that ends with the annotated frames around them."""

    corrected: Sequence[int]
    first: int
    last: int
    video: VideoPart
    start: int  # of the part
    annotations: Mapping[int, Labels]  # counted from the start of the part
    steps: int  # over both passes
    inherited: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # at the ends: what is not annotated


def intervals_of(
    video: Video,
    corrections: Mapping[int, Labels],
    known: Callable[[int], Labels],
    annotated: Mapping[int, Objects],
    config: PropagateConfig,
    *,
    sure: Sure = lambda _: {},
) -> list[Interval]:
    """The intervals of some corrections; those that touch are one.

    `known` gives the labels that a frame has now, `annotated` the objects that are annotated on a frame, `sure` how
    sure those are that were propagated to it. Where labels are propagated forward only, a correction changes nothing
    before it.
    """
    staying = {index: objects for index, objects in annotated.items() if index not in corrections}
    forward = config.direction == "forward"

    def interval(before: int, after: int, corrected: Sequence[int]) -> Interval:
        first, last = (corrected[0] if forward else max(before + 1, 0)), min(after - 1, len(video) - 1)
        start, stop = max(before, 0), min(after if forward else after + 1, len(video))
        ends = [end for end in (before, after) if start <= end < stop]
        given = {index: corrections[index] for index in corrected}
        given |= {end: complete(known(end)) for end in ends}
        between = {index: objects for index, objects in staying.items() if before < index < after and index >= start}
        given |= {index: only(known(index), objects) for index, objects in between.items()}
        part = VideoPart(video, start, stop)
        annotations = {index - start: labels for index, labels in sorted(given.items())}
        inherited = {
            end: {name: value for name, value in sure(end).items() if name not in objects}
            for end in ends
            if (objects := staying[end]) is not None
        }
        return Interval(
            corrected, first, last, part, start, annotations, count_steps(part, annotations, config), inherited
        )

    return [interval(*spans) for spans in _spans(corrections, staying, len(video))]


def _spans(
    corrections: Mapping[int, Labels], staying: Mapping[int, Objects], frames: int
) -> list[tuple[int, int, list[int]]]:
    """The frames around corrections that end what they control, and the corrections between them."""
    everything = frozenset(space_of(corrections).objects).union(*(objects for objects in staying.values() if objects))

    def alone(index: int) -> tuple[int, int, list[int]]:
        objects = everything if (told := annotated_objects(corrections[index])) is None else told
        ends = {frame for frame, there in staying.items() if there is None or objects <= there}
        return (*neighbours_of(index, ends, frames), [index])

    spans: list[tuple[int, int, list[int]]] = []
    for before, after, corrected in sorted(map(alone, corrections)):
        if spans and before < spans[-1][1]:
            first, last, earlier = spans.pop()
            spans.append((first, max(after, last), sorted([*earlier, *corrected])))
        else:
            spans.append((before, after, corrected))
    return spans


def propagate_interval(
    interval: Interval,
    *,
    encoder: Encoder,
    config: PropagateConfig,
    trust: TrustConfig | None,
    work: WorkFolder | None = None,
    maps: PassMaps | None = None,
    on_step: Callable[[], None] | None = None,
) -> Iterator[LabelledFrame]:
    """The frames that corrections control, from the annotations among and around them."""
    frames = propagate(
        interval.video,
        interval.annotations,
        encoder=encoder,
        config=config,
        trust=trust,
        work=work,
        maps=maps,
        on_step=on_step,
    )
    for frame in frames:
        if interval.first <= frame.index + interval.start <= interval.last:
            placed = replace(frame, index=frame.index + interval.start)
            yield _no_surer(placed, interval, forward=config.direction == "forward")


def _no_surer(frame: LabelledFrame, interval: Interval, *, forward: bool) -> LabelledFrame:
    """The frame, on which what started from an end is no surer than it was there."""
    if frame.confidence is None or frame.carried is None:
        return frame
    shares = {
        name: _inherited(interval, name, frame.index, forward=forward)
        for name, one in frame.confidence.objects.items()
        if not one.annotated
    }
    if all(share == 1 for share in shares.values()):
        return frame
    space = space_of(interval.annotations)
    extent = space.extent(frame.carried.soft)
    lost = extent.new_tensor([1 - shares.get(name, 1.0) for name in space.objects])
    objects = {}
    for name, one in frame.confidence.objects.items():
        value = one.value * shares.get(name, 1.0)
        kept = one.annotated or one.state in UNSEEN
        objects[name] = replace(one, value=value, state=one.state if kept else state_of(value))
    cells = frame.confidence.cells * (1 - (extent * lost).sum(dim=-1)).clamp(0, 1)
    confidence = Confidence(objects, cells, frame.confidence.grid)
    return replace(frame, confidence=confidence, labels=with_confidence(frame.labels, confidence))


def _inherited(interval: Interval, name: str, index: int, *, forward: bool) -> float:
    """How sure an object was where it started from: at the nearest frames with its labels, by nearness."""
    starts = {end: values[name] for end, values in interval.inherited.items() if name in values}
    for place, labels in interval.annotations.items():
        objects = annotated_objects(labels)
        if objects is None or name in objects:
            starts.setdefault(place + interval.start, 1.0)
    before, after = neighbours_of(index, starts.keys(), -1)
    if after == -1 or forward:
        return starts.get(before, 1.0)
    if before == -1:
        return starts[after]
    share = (index - before) / (after - before)
    return (1 - share) * starts[before] + share * starts[after]
