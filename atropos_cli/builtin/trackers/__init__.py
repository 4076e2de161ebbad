"""Trackers that come with atropos."""
