"""Which extra of the distribution brings a module that is not installed, and how to say so."""

_EXTRAS = {
    "joblib": "simulation",
    "matplotlib": "simulation",
    "numba": "simulation",
    "numpy": "simulation",
    "pyarrow": "simulation",
    "pymesos": "experiments",
    "scipy": "simulation",
    "sqlalchemy": "accounting",
}
"""Module → the extra to ask for; what several extras bring stands with the one that most need."""


def advice(error: ModuleNotFoundError) -> str | None:
    """Return what to do about a module that is missing; None: no extra of ours brings it."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    extra = _EXTRAS[module]
    return (
        f"this command needs {module}, which is not installed; it comes with an extra: "
        f"pip install 'longshare[{extra}]', or 'longshare[all]' for everything"
    )
