"""Compiled versions of search, vote and decoding, where propagation spends its time; torch replaces them if needed."""
