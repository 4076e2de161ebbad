"""Run folders as a person sees them, whatever command wrote them.

find, state, entry, listing   which runs there are, how each stands, one as a line of a list
journal, journalpage          the story of a training, with a person's own notes
reevaluations                 checkpoints of a finished training evaluated again
tracked                       a run of rollouts reported to trackers while it goes
"""
