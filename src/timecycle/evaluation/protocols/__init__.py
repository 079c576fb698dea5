"""Evaluation protocols: clips, ground truth and scores of each benchmark."""
