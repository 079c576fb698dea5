"""Output folders: what a run writes, how it resumes, and how it is read back, corrected and undone."""
