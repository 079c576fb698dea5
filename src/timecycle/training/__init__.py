"""Train an encoder on raw video: the loop, checkpoints, the journal, held-out validation and health alarms."""
