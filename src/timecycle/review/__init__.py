"""After a run: which frames to look at, what a correction changes, and whether labels can be right."""
