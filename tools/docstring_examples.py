"""A griffe extension: docstrings are shown as docstring_text.py has them."""

from typing import Any

import griffe

from docstring_text import as_shown


class DocstringExamples(griffe.Extension):
    """Changes each docstring when it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for each object of the package.

        Args:
            obj: The object.
            **kwargs: Not read.
        """
        if obj.docstring is not None:
            obj.docstring.value = as_shown(obj.docstring.value)
