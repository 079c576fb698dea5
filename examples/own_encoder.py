# %% [markdown]
# # Your own encoder, compared on your own footage
#
# Any object that turns an image into a grid of descriptors fits into the engine. Which of two is better can be
# measured on raw video, without a label: composites are objects cut out of your footage and moved across it, so their
# ground truth is known.
#
# `python examples/own_encoder.py [FOOTAGE [FOLDER]]`, where FOOTAGE is a folder of videos. Without it, small
# synthetic videos are made. A notebook has no arguments: change `footage` and `folder` below.

# %%
import sys
from pathlib import Path

import numpy as np
import torch

import timecycle as tc

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]
folder = Path(arguments[1] if len(arguments) > 1 else "own_encoder")
footage = Path(arguments[0] if arguments else folder / "sample" / "videos")
if not arguments:
    for seed in range(2):
        tc.write_sample(folder / "sample", name=f"clip{seed}", frames=40, seed=seed)

# %% [markdown]
# A descriptor of mean colour and edges, one for each 8x8 pixels. Descriptors have the length 1, so that products of
# two are similarities. The grid says on which pixel each is centred. Name and checksum keep the results of encoders
# apart: change the checksum with the code.


# %%
class ColourAndEdges:
    """Mean colour of 8x8 pixels, and how strong horizontal and vertical edges are among them."""

    name, sha256, description = "colour-and-edges", "1".zfill(64), "mean colour and edges of 8x8 pixels"

    def encode(self, image: np.ndarray) -> tc.FeatureMap:
        height, width, _ = image.shape
        rows, columns = height // 8, width // 8
        pixels = torch.from_numpy(image).float() / 255
        grey = pixels.mean(dim=-1)
        down, right = torch.zeros_like(grey), torch.zeros_like(grey)
        down[1:], right[:, 1:] = grey.diff(dim=0).abs(), grey.diff(dim=1).abs()
        values = torch.cat([pixels, 4 * down[..., None], 4 * right[..., None]], dim=-1)
        blocks = values[: rows * 8, : columns * 8].reshape(rows, 8, columns, 8, -1).mean(dim=(1, 3))
        cells = torch.nn.functional.normalize(blocks, dim=-1)
        return tc.FeatureMap(cells, tc.grid_over(height, width, cells=(rows, columns), stride_px=8, first_px=3.5))


# %% [markdown]
# Both encoders label the same composites, in the same way: `plain` is nearest neighbours and nothing else. Three of
# the twenty composites show that it runs; an empty list is all of them, as a real comparison needs. Evaluations
# resume where they were interrupted.

# %%
composites = folder / "composites"  # made once, with a seed, and used by both
config = tc.propagate_config("plain", ["image_size_px=240"])
sequences = ["composite-00", "composite-01", "composite-02"]
reports = {}
for name, encoder in {"own": ColourAndEdges(), "bundled": None}.items():
    reports[name] = tc.evaluate(
        "composites",
        footage,
        folder / name,
        encoder=encoder,
        config=config,
        sequences=sequences,
        footage=composites,
    )
    scores = reports[name].scores
    print(f"{name:8} J&F {scores['JF']:.3f}  J {scores['J']:.3f}  F {scores['F']:.3f}")

# %% [markdown]
# Is the difference more than chance? With few clips the answer may be that they cannot tell.

# %%
compared = tc.compare(reports["own"], reports["bundled"])
print(compared)
print(f"pictures of the predictions: {folder / 'own'} and {folder / 'bundled'}")
