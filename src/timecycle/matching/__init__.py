"""Exact nearest-neighbour matching between feature maps."""
