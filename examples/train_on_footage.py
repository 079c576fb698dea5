# %% [markdown]
# # Train on raw video, and propagate with the result
#
# Training needs no labels, only video. A minute shows that everything runs and learns a little; an encoder that is
# worth using takes hours: `docs/learning.md` says how many, and how to tell.
#
# `python examples/train_on_footage.py [FOOTAGE [FOLDER [MINUTES]]]`, where FOOTAGE is a folder of videos and nothing
# else, such as `data/videos`. Labels are then propagated through the first that has a mask: of `data/videos/dog.mp4`,
# `data/masks/dog/00000.png`. Without FOOTAGE, small synthetic videos are made. A notebook has no arguments: change
# the values below.

# %%
import sys
from pathlib import Path

import numpy as np

import timecycle as tc

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
folder = Path(arguments[1] if len(arguments) > 1 else "train_on_footage")
minutes = float(arguments[2]) if len(arguments) > 2 else 1.0
footage = Path(arguments[0] if arguments else folder / "sample" / "videos")
if not arguments:
    for seed in range(4):
        tc.write_sample(folder / "sample", name=f"clip{seed}", seed=seed)

# %% [markdown]
# `small` is the preset for a laptop. Smaller views and batches than it has make a minute go further. To adapt the
# bundled encoder instead of starting from nothing, pass its name as `start=`: then the result also says if training
# helped.

# %%
settings = ["batch=4", "view_px=96", "clips.short_side_px=112", "clips.crop_px=112", "encoder.last=res3"]
settings += ["held_out=0.2", "held_out_clips=8", "optimizer.warmup_steps=10"]
config = tc.train_config("small", settings)
done = tc.train(footage, folder / "training", config=config, minutes=minutes, overwrite=True, say=print)
print(f"{done.steps} steps: {done.weights}")

# %% [markdown]
# The weights are a file that every `encoder=` takes. `rgb`, which compares colours, is a control.

# %%
folders = {video: video.resolve().parents[1] / "masks" / video.stem for video in sorted(footage.iterdir())}
video, masks = next((one for one in folders.items() if (one[1] / "00000.png").is_file()), (None, None))
if video is None or masks is None:
    sys.exit(f"no video of {footage} has a mask to propagate, such as {folders.popitem()[1] / '00000.png'}")
overlaps = {}
for name, encoder in {"rgb": "rgb", "trained": done.weights}.items():
    run = tc.propagate_to_folder(
        video, {0: masks / "00000.png"}, folder / name, encoder=encoder, config="fast", overwrite=True
    )
    print(f"{name:8} {run}")
    pairs = []  # of masks, where there are others to compare with
    for frame in run.frames[1:]:
        file = masks / f"{frame.number:05d}.png"
        ground_truth = tc.Masks.read(file).ids if file.is_file() else np.zeros(0)
        pairs += [(run.labels[frame.index].ids == one, ground_truth == one) for one in np.unique(ground_truth)[1:]]
    overlaps[name] = float(np.mean([(a & b).sum() / (a | b).sum() for a, b in pairs])) if pairs else float("nan")
    print(f"{name:8} mean overlap with the other masks of {masks}: {overlaps[name]:.2f}")
