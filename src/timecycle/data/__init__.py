"""From raw video to training examples, each a pure function of (seed, epoch, position)."""
