"""Which games exist: a registry with one module for each family of generators.

A generator draws a blueprint (rooms, things, goals and its own plan) in plain Python; `assemble`
turns it into a TextWorld game. Only `assemble` and `challenges` touch TextWorld, and only when a
game is made, so that the registry can be listed without it.
"""
