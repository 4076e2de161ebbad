"""`atropos filter`: which rollouts stay, by rules, expressions, duplicates, caps and decontamination."""
