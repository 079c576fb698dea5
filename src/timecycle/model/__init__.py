"""Section 3.2 of the paper: the encoder phi and, while learning, the tracker."""
