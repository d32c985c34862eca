"""The commands of ``python -m paged``, one a file; ``group`` finds them by name."""
