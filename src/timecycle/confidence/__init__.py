"""How far to trust propagated labels, estimated without ground truth."""
