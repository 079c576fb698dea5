# %% [markdown]
# # Review a run and correct one frame
#
# `check` ranks the frames by what a correction of them would improve, `correct` propagates again only what depends on
# the corrected frame, and `undo` takes it back.
#
# `python examples/review_and_correct.py [VIDEO [FOLDER]]`. Of your own `data/videos/dog.mp4`, the mask of frame 0 is
# read from `data/masks/dog/00000.png`, and your correction of frame 43 from `data/masks/dog/00043.png`. Without a
# video, a small synthetic one is made, whose ground truth stands for the person who corrects. A notebook has no
# arguments: change `video` and `folder` below.

# %%
import sys
from pathlib import Path

import numpy as np

import timecycle as tc

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
folder = Path(arguments[1] if len(arguments) > 1 else "review_and_correct")
video = Path(arguments[0]) if arguments else tc.write_sample(folder / "sample")
masks = video.resolve().parents[1] / "masks" / video.stem

# %%
run = tc.propagate_to_folder(video, {0: masks / "00000.png"}, folder / "run", config="fast", overwrite=True)
checked = tc.check(run, count=3)
for one in checked.queue:
    print(f"frame {one.frame_number}: {one.reason}")
print(f"pictures of these frames: {checked.report}")

# %% [markdown]
# Correct the first of them. `check` has written its labels to `run/review/`, to edit in any painting program; save
# the result as the mask named below and run this again.

# %%
first = checked.queue[0]
correction = masks / f"{first.frame_number:05d}.png"
if not correction.is_file():
    sys.exit(f"edit {run.folder / 'review' / correction.name}, save it as {correction} and run this again")

# %% [markdown]
# Three numbers before and after: the mean confidence, how many frames are to be reviewed, and, where there are masks
# to compare with, the mean overlap with them (intersection over union).


# %%
def report(when: str) -> tuple[float, int, float]:
    """Print and return the mean confidence, the frames to review and the mean overlap with the masks."""
    confidence = float(np.mean([frame.confidence for frame in run.frames]))
    overlaps = []
    for frame in run.frames:
        file = masks / f"{frame.number:05d}.png"
        if file.is_file() and frame.index not in (0, first.index):  # not the annotated ones
            propagated, ground_truth = run.labels[frame.index].ids, tc.Masks.read(file).ids
            for identity in np.unique(ground_truth)[1:]:
                a, b = propagated == identity, ground_truth == identity
                overlaps.append((a & b).sum() / (a | b).sum())
    overlap = float(np.mean(overlaps)) if overlaps else float("nan")
    to_review = len(run.frames_to_review)
    print(f"{when:9} confidence {confidence:.2f}, {to_review:2d} frames to review, overlap {overlap:.2f}")
    return confidence, to_review, overlap


before = report("before")
for interval in tc.correct(run, {first.index: correction}):
    print(interval)
after = report("after")

# %% [markdown]
# `undo` restores the files of before, byte for byte; here the correction stays.

# %%
# tc.undo(run)
run.show().save(folder / "after.png")
print(folder / "after.png")
