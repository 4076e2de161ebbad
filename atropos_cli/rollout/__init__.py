"""The rollout engine: the plan of a run, its requests, groups, rewards, files and resuming."""
