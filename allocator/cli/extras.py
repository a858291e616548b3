"""Explains how to install a missing module: the optional extra of Longshare that provides it."""

_EXTRAS = {
    "distributed": "cluster",
    "joblib": "simulation",
    "matplotlib": "analysis",
    "numba": "fast",
    "numpy": "simulation",
    "pyarrow": "simulation",
    "pymesos": "experiments",
    "scipy": "analysis",
    "sqlalchemy": "accounting",
}
"""Extra to install for each module; of several extras, the one that most needs the module."""


def advice(error: ModuleNotFoundError) -> str | None:
    """Return a message that names the extra of Longshare to install for a missing module.

    Args:
        error: The error of importing the module.

    Returns:
        The message. None: no extra of Longshare provides the module.
    """
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    extra = _EXTRAS[module]
    return (
        f"this command needs {module}, which is not installed; it comes with an extra: "
        f"pip install 'longshare[{extra}]', or 'longshare[all]' for everything"
    )
