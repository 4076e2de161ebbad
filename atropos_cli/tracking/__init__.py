"""Reports of a run to trackers: services and files beside the run folder's own records."""
