"""Metrics that compare labels with the ground truth, defined as in the official evaluators."""
