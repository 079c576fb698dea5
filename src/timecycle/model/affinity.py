"""Affinity function f: the similarity of every patch cell to every frame cell (Eq. 1)."""

import torch
from jaxtyping import Float
from torch import Tensor

Features = Float[Tensor, "b c h w"]
Patches = Float[Tensor, "b m c rows columns"]  # several patches for each frame
Affinity = Float[Tensor, "b m patch frame"]  # for each patch cell a distribution over the cells of the frame


def compute_affinity(frame: Features, patches: Patches, *, temperature: float) -> Affinity:
    """Compute A(j, i) = softmax over j of <x^I(j), x^p(i)> / temperature, for descriptors of unit length.

    The paper prints no temperature. Cosines lie between -1 and 1, so without one the softmax over hundreds of cells
    is nearly uniform, and nothing can be learned from it.
    """
    batch, count = patches.shape[:2]
    queries = patches.flatten(3).transpose(2, 3)  # b m patch c
    similarity = torch.bmm(queries.flatten(1, 2), frame.flatten(2))
    return (at_least_fp32(similarity) / temperature).softmax(dim=2).reshape(batch, count, queries.shape[2], -1)


def at_least_fp32(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Convert half precision to fp32, which an exponential needs; keep fp64, for tests of gradients."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
