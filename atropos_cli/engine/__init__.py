"""The rollout engine: plan, run, roll, score, resume."""
