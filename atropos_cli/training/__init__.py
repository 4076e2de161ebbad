"""Everything around the optimiser, for every trainer.

build, data     the plan of a training and the rows or rollouts it learns from
session, live   what a trainer plugin is given: groups, evaluation, checkpoints, stopping
run, processes  one training from start to end, on one process or several
records         metrics, samples, health and summary of a training
"""
