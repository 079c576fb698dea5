"""The Python API: the commands of the command line as functions. Each file is loaded when one of its verbs is used."""
