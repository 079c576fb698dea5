"""Label files of other tools: one module per format, which reads, writes and says what the format cannot hold."""
