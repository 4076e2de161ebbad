"""What `atropos analyze` says of text games: wins, kinds, predictions, memory. In one pass and bounded memory."""
