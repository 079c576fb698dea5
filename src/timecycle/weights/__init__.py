"""Weights that come with the package are data: safetensors named NAME-HASH, each with its card."""
