"""The page of ``view``: one HTML file that shows a recording, without a network."""

from .write import write_page

__all__ = ["write_page"]
