"""Section 3.2 of the paper: the encoder phi and, for training, the tracker T = h(g(f))."""
