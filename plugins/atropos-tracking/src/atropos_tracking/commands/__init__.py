"""`atropos journal` and `atropos reevaluate`."""
