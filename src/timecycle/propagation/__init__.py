"""Propagate labels: the memory bank, weighted votes, and the stream of labelled frames."""
