"""How times, numbers and names are written in sentences."""


def duration(seconds: float) -> str:
    """Write a time for people, in the largest unit that leaves a whole one: 42 s, 1.5 h."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def called(user: str) -> str:
    """Write a user's name; the role `*` is a name here, and would be read as all of them."""
    return f"user '{user}'" if "*" in user else user


def counted(number: int, what: str) -> str:
    """Write how many there are of something: 1 agent, 2 agents."""
    return f"{number} {what}{'' if number == 1 else 's'}"
