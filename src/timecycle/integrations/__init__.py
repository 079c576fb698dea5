"""Interfaces of other programs: each package implements that of one host, and imports the API only."""
