"""Who used what, and who ordered what, in a database that outlives the service.

SQLAlchemy is loaded with `database` and `reading` alone: when there is a database to be opened.
"""

HOUR = 3600
DAY = 86400
"""Seconds; both begin by UTC."""
OTHERS = "(others)"
"""Stands for users beyond those that are named in a day; no role can be called so."""


class TooMuch(Exception):  # noqa: N818 - nothing has failed
    """An answer would take more than anybody may ask for; says what to ask instead."""
