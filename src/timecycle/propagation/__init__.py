"""Carrying labels: who is remembered, who votes, and the stream of labelled frames."""
