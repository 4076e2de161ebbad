"""Inference servers as the core knows them: records of those that run, and the machine they run on."""
