"""The records of trainings, whatever trainer made them: read here, written by the plugin that trains.

metrics, steplog   numbers of each step
samples            some completions of a step, as they are shown
curves             charts of the metrics
summary            the plan of a training, its state, its checkpoints
"""
