"""Training samples from videos: clips, patches, views, copy-paste augmentation, elastic warps and composites."""
