"""TextWorld games as an atropos environment.

`plugin` tells atropos what is here; `environment` and `episode` are what it runs; `games` decides
which games exist; `engine` builds and plays them in worker processes. Nothing is imported here,
because every worker process imports this module first.
"""
