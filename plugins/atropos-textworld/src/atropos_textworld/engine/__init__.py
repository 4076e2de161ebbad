"""Building and playing games, each in processes of their own.

`worker` is the program those processes run; `build`, `session` and `observation` are
used inside them. `runtime`, `pool`, `fleet` and `process` are the side that asks, which never
imports TextWorld. `protocol` is what the two say to each other, `cache` what is kept on disk,
`runfolder` what is not.
"""
