"""Review of labels: which frames to check first, corrections, audits of labels, and tuning of settings."""
