"""Pipelines: which steps are done, one step, all steps here, or each as a job."""
