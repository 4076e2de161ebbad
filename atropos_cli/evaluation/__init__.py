"""From the groups of a run to an evaluation: success by task, pass@k, intervals, and changes."""
