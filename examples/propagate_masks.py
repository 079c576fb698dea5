# %% [markdown]
# # Propagate a mask through a video
#
# The mask of frame 0 becomes a mask of every frame, with its confidence, and a picture of it.
#
# `python examples/propagate_masks.py [VIDEO [FOLDER]]`. Of your own `data/videos/dog.mp4`, the mask of frame 0 is
# read from `data/masks/dog/00000.png`. Without a video, a small synthetic one is made. A notebook has no arguments:
# change `video` and `folder` below.

# %%
import sys
from pathlib import Path

import numpy as np

import timecycle as tc

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
folder = Path(arguments[1] if len(arguments) > 1 else "propagate_masks")
video = Path(arguments[0]) if arguments else tc.write_sample(folder / "sample")
masks = video.resolve().parents[1] / "masks" / video.stem

# %% [markdown]
# `propagate` gives the frames one by one and writes nothing. `fast` is the preset for 240 pixels; without `config` it
# is 480. Labels hold an object id for each pixel.

# %%
ids, confidence = [], []
for frame in tc.propagate(video, {0: masks / "00000.png"}, config="fast"):
    ids.append(frame.labels.ids)
    confidence.append(frame.confidence.value)
    if frame.index % 8 == 0:
        print(f"frame {frame.index:3d}  {frame.time_seconds:5.2f} s  {frame.labels}  confidence {frame.confidence}")
        (folder / "overlays").mkdir(parents=True, exist_ok=True)
        frame.show().save(folder / "overlays" / f"{frame.index:05d}.png")

# %% [markdown]
# Where to look: confidence is between 0 and 1, and 1 on annotated frames.

# %%
worst = int(np.argmin(confidence))
print(f"{len(ids)} frames; the least confident is frame {worst}, with {confidence[worst]:.2f}")

# %% [markdown]
# If there are masks of other frames too, as beside the synthetic video, see how well the propagated ones overlap with
# them: the area of both divided by the area of either (intersection over union).

# %%
overlaps = []
for index, propagated in enumerate(ids):
    file = masks / f"{index:05d}.png"
    if index > 0 and file.is_file():
        ground_truth = tc.Masks.read(file).ids
        for identity in np.unique(ids[0])[1:]:  # the objects of frame 0, without the background
            a, b = propagated == identity, ground_truth == identity
            if b.any():
                overlaps.append((a & b).sum() / (a | b).sum())
if overlaps:
    print(f"mean overlap with the masks in {masks}: {np.mean(overlaps):.2f}")

# %% [markdown]
# The same with all its files: labels, tables, an overlay video and a contact sheet.

# %%
run = tc.propagate_to_folder(video, {0: masks / "00000.png"}, folder / "run", config="fast", overwrite=True)
print(run, run.overlay, run.folder / "contact.png", sep="\n")
