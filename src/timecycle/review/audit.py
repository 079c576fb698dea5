"""Audit labels made by any tool: do masks or keypoints fit the video they belong to?

No frame is trusted. Labels of a frame are propagated to later frames and compared with the labels there. Correct labels
move with the video. Wrong labels do not, even where they agree with each other, because the image under them moves
differently. This also finds tracks whose labels belong to other frames than their files are named for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from timecycle.errors import LabelError
from timecycle.labels import Labels
from timecycle.model.encoder import Encoder
from timecycle.progress import OnProgress
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import fit_labels, space_of
from timecycle.review.label_track import Step, Track, follow
from timecycle.video import Video

FindingKind = Literal["shift", "swap", "jump", "dropped", "frozen", "drift"]

_MIN_DIFFERENCE = 0.005  # in overlap: smaller ones do not tell two shifts apart
_ONE_DIRECTION = 0.75  # of the total slip: back and forth is noise of the features
_SHOWN = 10  # findings in a repr
_MIN_MATCHED = 0.25  # share of an object that must be matched to measure where it went


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """Thresholds of the findings. Set on the synthetic world and a few composites; see benchmarks/audit.py."""

    span_frames: int = 5  # over which labels are propagated for drift and shift
    max_shift_frames: int = 6  # by which a whole track may be off
    shift_gain: float = 0.015  # in overlap: how much better another shift has to fit
    shift_agreement: float = 0.75  # and on what share of the frames that distinguish the shifts
    jump: float = 0.4  # share of what is matched that keeps its label; less is a jump
    swap: float = 0.25  # in overlap: how much better another object fits
    dropped: float = 0.3  # share of the object that the video still shows
    frozen_frames: int = 3  # how many frames labels stay exactly the same
    frozen: float = 0.15  # of an object's size: how far the image under it moves meanwhile
    drift: float = 0.5  # of an object's size: how far labels moved off what they were on


@dataclass(frozen=True)
class Finding:
    """A suspected error in the labels: its kind, its frames and its strength."""

    kind: FindingKind
    first: int
    last: int
    object: str
    strength: float  # relative to the threshold
    message: str


@dataclass(frozen=True, eq=False)
class Audit:
    """The findings, the strongest first, and how well the labels of every frame fit those before."""

    frames: Sequence[int]
    findings: Sequence[Finding]
    overlap: Float64[np.ndarray, "frames objects"]  # with labels propagated from the frame before; NaN on the first

    def __repr__(self) -> str:
        count = len(self.findings)
        more = [f"  and {count - _SHOWN} more"] if count > _SHOWN else []
        lines = [f"  {one.kind} ({one.strength:.1f}): {one.message}" for one in self.findings[:_SHOWN]]
        head = f"Audit({len(self.frames)} frames, {count or 'no'} finding{'' if count == 1 else 's'})"
        return "\n".join((head, *lines, *more))


def audit(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    encoder: Encoder,
    config: PropagateConfig,
    limits: AuditConfig | None = None,
    progress: OnProgress | None = None,
) -> Audit:
    """Follow the labels through the video and find identity swaps, jumps, dropped objects, frozen labels, drift and
    shifted tracks."""
    limits = limits or AuditConfig()
    labels = fit_labels(video, labels)
    if len(labels) < 3:
        raise LabelError(f"there are labels on {len(labels)} frames only", remedy="give labels on at least 3 frames")
    track = follow(
        video,
        labels,
        encoder,
        config,
        span_frames=limits.span_frames,
        max_shift_frames=limits.max_shift_frames,
        progress=progress,
    )
    # Over a longer gap an object may be anywhere, so nothing can be said.
    steps = [step for step in track.steps if step.index - step.index_before <= limits.span_frames]
    findings = [
        *_shifts(track, limits),
        *_swaps(steps, track.names, limits),
        # Keypoints that end are not reported: whether a point is visible is for people to say.
        *(_drops(steps, track.names, limits) if space_of(labels).exclusive else ()),
        *_jumps(steps, track.names, limits),
        *_freezes(steps, track.names, limits),
        *_drifts(track, limits),
    ]
    fits = np.array([np.full(len(track.names), np.nan), *(step.overlap for step in track.steps)])
    return Audit(track.frames, sorted(findings, key=lambda one: -one.strength), fits)


# Findings


def _shifts(track: Track, limits: AuditConfig) -> list[Finding]:
    """Find a track that fits the video better some frames earlier or later."""
    if not track.consecutive or len(track.fits) < 8:
        return []
    fits = np.array(track.fits)
    fits = fits[np.isfinite(fits).all(axis=1)]  # frames that show an object at every shift
    if len(fits) < 8:
        return []
    best = int(fits.mean(axis=0).argmax())
    gain = fits[:, best] - fits[:, limits.max_shift_frames]
    distinct = np.abs(gain) > _MIN_DIFFERENCE
    agreement = float((gain[distinct] > 0).mean()) if distinct.any() else 0.0
    strength = min(gain.mean() / limits.shift_gain, agreement / limits.shift_agreement)
    by = best - limits.max_shift_frames
    if by == 0 or strength < 1:
        return []
    count = f"{abs(by)} frame{'s' if abs(by) > 1 else ''}"
    file = track.numbers[track.frames[0]]
    message = f"the labels are {count} {'early' if by > 0 else 'late'}: file {file} shows frame {file + by}"
    return [Finding("shift", track.frames[0], track.frames[-1], "", round(float(strength), 2), message)]


def _swaps(steps: Sequence[Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find two objects that exchange their labels from one frame to the next."""
    findings = []
    for step in steps:
        for i in range(len(names)):
            for j in range(i + 1, len(names)):
                gain = _swap_gain(step, i, j)
                if gain >= limits.swap:
                    pair = f"{names[i]} and {names[j]}"
                    message = f"objects {pair} swap identities at frame {step.number}"
                    strength = round(float(gain / limits.swap), 2)
                    findings.append(Finding("swap", step.index, step.index, pair, strength, message))
    return findings


def _swap_gain(step: Step, i: int, j: int) -> float:
    """Return how much better both objects fit the other's labels than their own."""
    cross = step.cross_overlap
    return float(min(cross[i, j] - cross[i, i], cross[j, i] - cross[j, j]))


def _drops(steps: Sequence[Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find objects that end from one frame to the next; an object that leaves or is hidden shrinks first."""
    findings = []
    usual = _median_areas(steps)
    for step in steps:
        for i, name in enumerate(names):
            share = float(step.matched[i] / max(step.area_before[i], 1e-6))
            if step.area[i] == 0 and step.area_before[i] >= max(usual[i] / 2, 1) and share >= limits.dropped:
                message = f"object {name} ends at frame {step.number}, though the video still shows it"
                strength = round(share / limits.dropped, 2)
                findings.append(Finding("dropped", step.index, step.index, name, strength, message))
    return findings


def _median_areas(steps: Sequence[Step]) -> Float64[np.ndarray, " objects"]:
    """Return the median area of each object over the frames that show it: a sliver of an object says little."""
    areas = np.array([step.area_before for step in steps])
    return np.array([np.median(of[of > 0]) if (of > 0).any() else 0.0 for of in areas.T])


def _jumps(steps: Sequence[Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find labels that suddenly leave what they were on; an object that is half hidden has not jumped."""
    findings = []
    usual = _median_areas(steps)
    for step in steps:
        for i, name in enumerate(names):
            small = min(step.area_before[i], step.area[i]) < max(usual[i] / 2, 1)
            if small or step.matched[i] < _MIN_MATCHED * step.area_before[i]:
                continue
            if any(_swap_gain(step, i, j) >= limits.swap for j in range(len(names)) if j != i):
                continue
            share = float(step.matched_same[i] / step.matched[i])
            if share < limits.jump:
                message = f"object {name} jumps at frame {step.number}: {share:.0%} of it is where it should be"
                strength = round((1 - share) / (1 - limits.jump), 2)
                findings.append(Finding("jump", step.index, step.index, name, strength, message))
    return findings


def _freezes(steps: Sequence[Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find labels that stay exactly the same while the image under them moves."""
    findings = []
    for i, name in enumerate(names):
        run: list[Step] = []
        for step in [*steps, None]:
            if step is not None and step.unchanged[i] and step.area[i] > 0:
                run.append(step)
                continue
            if len(run) >= limits.frozen_frames:
                # Motions add up as vectors, so that noise of the features cancels out.
                moved = float(np.linalg.norm(sum(one.motion[i] for one in run)) / run[0].area[i] ** 0.5)
                if moved >= limits.frozen:
                    frames = f"frames {run[0].number} to {run[-1].number}"
                    message = f"object {name} is frozen on {frames} while the video moves"
                    strength = round(min(moved / limits.frozen, 10.0), 2)
                    findings.append(Finding("frozen", run[0].index, run[-1].index, name, strength, message))
            run = []
    return findings


def _drifts(track: Track, limits: AuditConfig) -> list[Finding]:
    """Find labels that slowly move off an object in one direction, too little to see from frame to frame."""
    findings = []
    for name, slips in zip(track.names, track.slips, strict=True):
        if len(slips) < 3:
            continue
        offsets = np.array([offset for _, offset in slips])
        drifted, total = np.linalg.norm(offsets.sum(axis=0)), np.linalg.norm(offsets, axis=1).sum()
        strength = float(drifted / limits.drift)
        if strength >= 1 and drifted >= _ONE_DIRECTION * total:
            first, last = track.frames[slips[0][0] - limits.span_frames], track.frames[slips[-1][0]]
            frames = f"between frames {track.numbers[first]} and {track.numbers[last]}"
            message = f"object {name} drifts by {drifted:.0%} of its size {frames}"
            findings.append(Finding("drift", first, last, name, round(strength, 2), message))
    return findings
