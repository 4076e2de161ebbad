"""Training data from stored rollouts: filtering, rescoring, merging, conversion."""
