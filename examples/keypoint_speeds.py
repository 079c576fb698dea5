# %% [markdown]
# # From keypoints to a table of speeds
#
# Points that were placed on one frame become tracks, and these a table and a plot of how fast each point moves. The
# plot needs matplotlib: `pip install 'timecycle[eval]'`.
#
# `python examples/keypoint_speeds.py [VIDEO [FOLDER]]`. Of your own `data/videos/mouse.mp4`, the points are read from
# `data/points/mouse.csv`, with the columns `frame,name,x,y,visible`. Without a video, a small synthetic one is made.
# A notebook has no arguments: change `video` and `folder` below.

# %%
import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import timecycle as tc

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
folder = Path(arguments[1] if len(arguments) > 1 else "keypoint_speeds")
video = Path(arguments[0]) if arguments else tc.write_sample(folder / "sample")
points = video.resolve().parents[1] / "points" / f"{video.stem}.csv"

# %%
run = tc.propagate_to_folder(video, points, folder / "run", config="fast", overwrite=True)
names = run.labels[0].names
times = np.array([frame.time_seconds for frame in run.frames])
xy = np.stack([run.labels[index].xy for index in range(len(run))])  # (frames, points, 2), in pixels
visible = np.stack([run.labels[index].visible for index in range(len(run))])
xy[~visible] = np.nan  # a hidden point has no position
print(f"{len(run)} frames, {len(names)} points")

# %% [markdown]
# The output folder has the speed from each frame to the next in `measurements.csv`. That is noisy: a pixel back and
# forth in every frame is a high speed. Here it is the slope of a straight line through the five frames around each
# frame.

# %%
reach = 2  # frames before and after
speed = np.full(visible.shape, np.nan)  # pixels per second
for index in range(reach, len(run) - reach):
    near = slice(index - reach, index + reach + 1)
    t = times[near] - times[near].mean()
    velocity = np.tensordot(t, xy[near], axes=1) / (t**2).sum()  # least squares; nan if a point is hidden meanwhile
    speed[index] = np.linalg.norm(velocity, axis=-1)

# %%
with (folder / "speeds.csv").open("w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(["index", "time_seconds", "name", "x_px", "y_px", "speed_px_per_second", "confidence"])
    for index, point in np.argwhere(np.isfinite(speed)):
        confidence = run.confidence[index][names[point]].confidence
        row = [*xy[index, point], speed[index, point], confidence]
        table.writerow([index, f"{times[index]:.4f}", names[point], *(f"{value:.3f}" for value in row)])
for point, name in enumerate(names):
    known = speed[np.isfinite(speed[:, point]), point]
    if len(known):
        print(f"{name:16} median {np.median(known):6.1f} px/s, highest {known.max():6.1f}")

# %%
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for point in np.flatnonzero(np.isfinite(speed).any(axis=0)):
    axes.plot(times, speed[:, point], label=names[point])
axes.set(xlabel="time (s)", ylabel="speed (px/s)", ylim=(0, None))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
figure.savefig(folder / "speeds.png", dpi=120)
print(folder / "speeds.csv", folder / "speeds.png", sep="\n")
