"""Which run folders there are, and how each of them stands: the one place that knows what a run folder is.

find     run folders below a folder, bounded
state    is it running, finished, interrupted ...: by its lock and its records
entry    one run as a line of a list, read from its small files only
"""
