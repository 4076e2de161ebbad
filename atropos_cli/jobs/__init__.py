"""Jobs: the components of a JobPlan started, watched and stopped in order; the same here, under tmux and SLURM."""
