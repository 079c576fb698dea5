"""Propagation through many videos: one after the other, in shards of an array job, or on Ray."""
