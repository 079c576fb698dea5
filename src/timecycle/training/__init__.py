"""Learning an encoder from raw video: the loop, what it saves, what it tells, and when it should worry."""
