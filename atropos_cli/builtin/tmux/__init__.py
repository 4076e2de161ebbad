"""The tmux launcher: jobs in sessions of a tmux server of our own."""
