"""The page in the browser: the verbs of the API and the output folder of the command line, worked with a mouse.

The server (`app.py`) holds no video and no label. Frames and labels are read by child processes (`workers.py`), and
verbs run in a process of their own (`jobs.py`): a crash of a decoder, or a shortage of memory, never takes the page
down. What a person annotates is kept as files (`annotations.py`).
"""
