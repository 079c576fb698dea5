"""Pack a corpus of videos into shards, and read them back through a cache."""
