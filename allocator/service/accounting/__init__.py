"""Accounting: usage by users and operator commands, in a database that outlives the service.

Only the modules `database` and `queries` import SQLAlchemy, and they are imported when a database
is opened.
"""

HOUR = 3600
DAY = 86400
"""Seconds of an hour and of a day. Accounted hours and days begin by UTC."""
OTHERS = "(others)"
"""Name under which users beyond the daily limit are summed up; no role can have this name."""


class TooMuch(Exception):  # noqa: N818 - no error of the service
    """Raised if an accounting query is too slow or too large; the text says how to narrow it."""
