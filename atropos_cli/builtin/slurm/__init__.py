"""The SLURM launcher: renders one short batch script, submits it, asks how it stands."""
