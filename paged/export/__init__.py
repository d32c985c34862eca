"""Export: a recording in the forms that people already open."""

from .formats import FORMATS, export

__all__ = ["FORMATS", "export"]
