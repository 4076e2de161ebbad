"""The rollout engine: from a plan to groups of scored rollouts, in files that a crash cannot lose.

planner, tasks          the plan of a run, and which tasks it plays
runner, components      open what the plan names; which group comes next; stop, resume, summary
groups, prefill, tokens one group: episodes, requests, token spans
dispatch, stopping      requests in flight, retries, back-pressure, limits
costs, replycache       money, and replies that are known already
player                  tasks of the caller's choice, rolled out with a backend of its own: how trainings sample
scoring, workers        rewards, in this process or in ones that can be killed; advantages
sessions, totals        what all sessions of a run counted
"""
