"""Encoders that were not trained here, behind the same protocol: for comparison, or because a user prefers them."""
