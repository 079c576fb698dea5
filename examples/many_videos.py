# %% [markdown]
# # Label many videos
#
# `bulk` labels a list of videos, skips those that are finished when it is called again, and records failures instead
# of stopping. `label_batch` does the same to columns of a table, for Ray Data or Spark.
#
# `python examples/many_videos.py [FOOTAGE [FOLDER]]`, where FOOTAGE is a folder of videos such as `data/videos`. The
# mask of frame 0 of `data/videos/dog.mp4` is `data/masks/dog/00000.png`. Without it, small synthetic videos are made.
# A notebook has no arguments: change `footage` and `folder` below.

# %%
import io
import sys
import tarfile
from pathlib import Path

import timecycle as tc

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
folder = Path(arguments[1] if len(arguments) > 1 else "many_videos")
footage = Path(arguments[0] if arguments else folder / "sample" / "videos")
if not arguments:
    for seed in range(2):
        tc.write_sample(folder / "sample", name=f"clip{seed}", frames=12, seed=seed)

# %%
items = []
for video in sorted(footage.iterdir()):
    mask = video.resolve().parents[1] / "masks" / video.stem / "00000.png"
    if mask.is_file():
        items.append({"video": str(video), "labels": str(mask), "name": video.stem})
print(f"{len(items)} videos with a mask")

# %% [markdown]
# Each video gets a folder of its own. `ray="local"` uses all cores of this machine, the address of a cluster all of
# its machines; `pip install 'timecycle[bulk]'`.

# %%
done = tc.bulk(items, folder / "labelled", config="fast")
print(f"{done.done} of {done.videos} done, {done.dead} failed")
again = tc.bulk(items, folder / "labelled", config="fast")  # nothing to do any more
print(f"called again: {again.before} were done before")

# %% [markdown]
# Begin the review where confidence is lowest.

# %%
runs = {item["name"]: tc.Run(folder / "labelled" / item["name"]) for item in items}
for name, run in sorted(runs.items(), key=lambda one: sum(frame.confidence for frame in one[1].frames) / len(one[1])):
    mean = sum(frame.confidence for frame in run.frames) / len(run)
    print(f"{name}: mean confidence {mean:.2f}, {len(run.frames_to_review)} of {len(run)} frames to review")

# %% [markdown]
# The same as columns in and columns out. A row has the files of its run as a tar, or an error; a video that cannot be
# read does not stop the others.

# %%
columns = {"video": [items[0]["video"], "missing.mp4"], "labels": [items[0]["labels"]] * 2}
rows = tc.label_batch(columns, config="fast")
for name, frames, error in zip(rows["name"], rows["frames"], rows["error"], strict=True):
    print(f"{name}: {error or f'{frames} frames'}")
with tarfile.open(fileobj=io.BytesIO(rows["output"][0])) as tar:
    print(f"{len(tar.getnames())} files, among them {[name for name in tar.getnames() if name.endswith('.csv')]}")
