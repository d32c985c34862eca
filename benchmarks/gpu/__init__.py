"""The steps of gpu_check.py, one file each, and what they share: where things run, and how they are timed."""
