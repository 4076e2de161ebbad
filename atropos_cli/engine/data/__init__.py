"""From rollouts to data: filtering, scoring again, merging."""
