"""Run folders as a person sees them, whatever command wrote them.

find, state, entry, listing   which runs there are, how each stands, one as a line of a list
tracked                       a run of rollouts reported to trackers while it goes
"""
