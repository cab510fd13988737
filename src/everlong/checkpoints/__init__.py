"""Checkpoint formats, one file each. Foreign names and layouts are turned here, and nowhere else."""
