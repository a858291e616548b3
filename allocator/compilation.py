"""Marks for classes that mypyc compiles (`setup.py`); without meaning in interpreted code.

`allow_interpreted_subclasses`: interpreted classes derive from the class. `serializable`: the
module `copy` copies objects of the class. mypyc copies a class correctly only with both marks.
"""

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_marks: bool) -> object:
        """Return a decorator that leaves a class unchanged."""
        return lambda marked: marked
