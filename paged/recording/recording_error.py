"""RecordingError: what a file that is no recording raises."""


class RecordingError(ValueError):
    """A file is no recording, or one that this version cannot read."""
