"""Carry out pipelines: what is done already, one step, all steps here, or each step as a job."""
