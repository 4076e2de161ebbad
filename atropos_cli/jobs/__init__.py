"""Jobs: start the components of a JobPlan, watch them, stop them in order. The same here, under tmux and SLURM."""
