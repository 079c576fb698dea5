"""The clips of a corpus: index, sampling order and loading."""
