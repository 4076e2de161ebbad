"""What a training run leaves behind: metrics, completions, warnings, trackers, learning curves, journal."""
