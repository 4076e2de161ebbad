"""Commands that show what runs hold: `atropos view` and `atropos analyze`."""
