"""Plugins of other programs: thin layers over the API, each loaded by its program only."""
