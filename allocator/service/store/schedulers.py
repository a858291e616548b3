"""Which scheduler's users a store contains: a service refuses the store of another scheduler."""

from allocator.service.scheduler_commands import COMMAND, Scheduler
from allocator.service.store import OtherScheduler
from allocator.users.memory import Memory

_SLURM_RESOURCES = frozenset({"cpus", "mem", "gpus", "tasks"})
"""Resources of Slurm's jobs, besides generic resources: gres/NAME."""


def require_scheduler(own: Scheduler | None, stated: Scheduler | None, memory: Memory) -> None:
    """Check that a store's content belongs to the scheduler of this service.

    Args:
        own: The scheduler of this service; None to accept every content.
        stated: The scheduler that the store states; None in a store of a former version.
        memory: The content of the store. If the store states no scheduler, `_recognized` decides.

    Raises:
        OtherScheduler: the content belongs to another scheduler.
    """
    content = stated or _recognized(memory)
    if own is not None and content is not None and content != own:
        raise OtherScheduler(
            f"contains commitments of {content.capitalize()}'s users, which "
            f"`{COMMAND[content]}` saves; `{COMMAND[own]}` needs another store: set another "
            "path or znode in [store]"
        )


def _recognized(memory: Memory) -> Scheduler | None:
    """Return the scheduler that a content without a statement belongs to; None if unknown.

    Only Mesos has places of frameworks, and resources such as `disk`. Only Slurm has generic
    resources and task shares.
    """
    names = {name for user in memory.users.values() for name in (*user.commitments, *user.overuse)}
    if memory.places or any(not _is_of_slurm(name) for name in names):
        return "mesos"
    return "slurm" if any(name == "tasks" or "/" in name for name in names) else None


def _is_of_slurm(name: str) -> bool:
    return name in _SLURM_RESOURCES or name.startswith("gres/")
