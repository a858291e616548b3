"""Safe file access: replaces files atomically, and never blocks on pipes or other special files."""

import errno
import grp
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
_NOT_PLAIN = "not a plain file; name another"
_REMEDIES = {
    errno.EACCES: "change its permissions, or name another",
    errno.EEXIST: "name another",
    errno.EISDIR: "name a file",
    errno.ENOENT: "check the path",
    errno.ENOSPC: "free some space, or name a file on another disk",
    errno.ENOTDIR: "check the path",
}
"""Remedies for errors of the operating system, by error number."""
_OF_WRITES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Error numbers of a failed write, which the operating system reports without a file's name."""


_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_PRIVATE = ".part-"
"""Start of the names of private folders for single files."""
_MOST_LINKS = 40
"""Number of links in a row that the operating system follows, too."""


class UntrustedPathError(OSError):
    """Another user could exchange a file or folder; the text has the path, reason and remedy."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Replace a file atomically: yield a temporary path to write to, which then becomes `path`.

    A context manager. If the block raises an error, the old file stays.

    If several processes write the same file, the result is the complete file of one of them. A path
    that is no regular file, such as a pipe or /dev/null, is written to directly. If `path` is a
    symbolic link, the link stays and its target is replaced.

    Another user may be able to write the folder, and to exchange names there for links. Therefore
    the temporary file is in a private folder. Each file and folder is opened once, and then named
    by its descriptor (Linux only).

    Raises:
        OSError: the file cannot be replaced, or is a link of another user; the error names `path`,
            not the temporary file.
    """
    with ExitStack() as opened:
        try:
            target = _target_of(path, opened)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        if target.existing is not None and not _is_regular(target.existing):
            existing = _path_of(target.existing)
            with _errors_naming(path, existing):
                yield existing
            return
        opened.enter_context(_errors_naming(path, _PRIVATE))
        folder = opened.enter_context(private_folder(target.folder))
        temporary = folder.path / target.name
        with _errors_naming(path, temporary):
            yield temporary
            temporary.replace(_path_of(target.folder) / target.name)


class PrivateFolder(NamedTuple):
    """A new folder for this user only."""

    name: str
    """Name of the folder, for readers only, because another user may exchange names."""
    path: Path
    """Path of the folder in this process only, with the folder's descriptor instead of a name."""


@contextmanager
def private_folder(parent: int, prefix: str = _PRIVATE) -> Iterator[PrivateFolder]:
    """Create a folder of this user only, and delete the folder and its content at the end.

    If another user can write the parent folder, this user can exchange the new folder before the
    process opens it. Therefore the open folder must then be empty and private. In a safe parent
    folder, modes are not checked, because some file systems keep no modes.

    Args:
        parent: Descriptor of the parent folder.
        prefix: Start of the folder's name.

    Raises:
        OSError: the folder cannot be created, or another user exchanged it.
    """
    name = f"{prefix}{os.getpid()}-{secrets.token_hex(8)}"
    os.mkdir(name, 0o700, dir_fd=parent)
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(name, flags, dir_fd=parent)
        try:
            if not _is_trusted(os.fstat(parent)) and not _is_new(folder):
                raise OSError(
                    errno.EPERM,
                    "another user exchanged a temporary folder; name a folder that no other user "
                    "can write",
                    name,
                )
            try:
                yield PrivateFolder(name, _path_of(folder))
            finally:
                _clear(folder)
        finally:
            os.close(folder)
    finally:
        with suppress(OSError):  # another user may have exchanged the folder
            os.rmdir(name, dir_fd=parent)


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Open a folder without reading it: yield a descriptor, for names relative to the folder.

    Raises:
        OSError: the folder cannot be opened.
    """
    descriptor = os.open(path, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def trusted_folder(path: Path) -> Iterator[int]:
    """Open a folder like `open_folder`, but only if other users cannot exchange the folder.

    The folder and all folders above it must belong to root or to the user of this process. Neither
    group nor others may write to them. A shared folder with the sticky bit, such as /tmp, may be
    above. No component of the path is a symbolic link. Each component is opened once, relative to
    the folder above, and checked through its descriptor. So no user can exchange a component
    between check and use.

    Args:
        path: Absolute path of the folder.

    Raises:
        UntrustedPathError: another user could exchange the folder, or a component is a link.
        OSError: a component cannot be opened.
    """
    with ExitStack() as opened:
        folder = opened.enter_context(open_folder(Path("/")))
        require_trusted(Path("/"), os.fstat(folder))
        for component in (*reversed(path.parents[:-1]), path):
            if component.name:
                folder = open_component(folder, component, _FOLDER)
                opened.callback(os.close, folder)
                require_trusted(component, os.fstat(folder))
        yield folder


def open_component(folder: int, component: Path, flags: int) -> int:
    """Return a descriptor of the last component of a path, which may be no link.

    Args:
        folder: Descriptor of the folder above.
        component: The path up to this component.
        flags: Flags as for `os.open`.

    Raises:
        UntrustedPathError: the component is a symbolic link.
        OSError: the component cannot be opened.
    """
    try:
        return os.open(component.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise UntrustedPathError(
                f"{component} is a symbolic link; give the file's real path"
            ) from error
        raise


def require_trusted(path: Path, status: os.stat_result) -> None:
    """Check that only root and the user of this process may write to a file or folder.

    A folder with the sticky bit passes, because users can exchange only their own files there.

    Args:
        path: The file or folder, for the error message.
        status: Its status.

    Raises:
        UntrustedPathError: another user may write to the file or folder.
    """
    if _is_trusted(status):
        return
    if status.st_uid not in {0, os.geteuid()}:
        raise UntrustedPathError(
            f"{path} belongs to user {status.st_uid}, who could change the code that Longshare "
            f"runs; it must belong to root or to user {os.geteuid()}, who runs Longshare (chown)"
        )
    raise UntrustedPathError(
        f"users other than its owner can write {path} (mode {stat.S_IMODE(status.st_mode):o}), "
        f"and could change the code that Longshare runs: chmod go-w {path}"
    )


def _is_trusted(status: os.stat_result) -> bool:
    is_shared_folder = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return status.st_uid in {0, os.geteuid()} and bool(
        is_shared_folder or not status.st_mode & _WRITABLE_BY_OTHERS
    )


def _is_new(folder: int) -> bool:
    """Return whether an open folder is empty, and only this user can read and write it."""
    status = os.fstat(folder)
    private = stat.S_IMODE(status.st_mode) & 0o777 == stat.S_IRWXU
    return private and status.st_uid == os.geteuid() and not os.listdir(folder)


def _clear(folder: int) -> None:
    """Delete the content of an open folder."""
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=folder)


class _Target(NamedTuple):
    """The file to which a path leads."""

    folder: int
    """Descriptor of the file's folder."""
    name: str
    """Name of the file in its folder."""
    existing: int | None
    """Descriptor of the file; None if no such file exists."""


def _target_of(path: Path, opened: ExitStack) -> _Target:
    """Return the file to replace or to write: the target of a link, or the path itself.

    Each link is opened, checked and read through one descriptor, so exchanged names have no effect.

    Args:
        path: The path.
        opened: Closes all descriptors.

    Raises:
        OSError: a link belongs to another user, or a folder does not exist.
    """

    def open_path(name: str | Path, flags: int) -> int:
        descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
        opened.callback(os.close, descriptor)
        return descriptor

    folder: int | None = None
    for _ in range(_MOST_LINKS):
        folder = open_path(path.parent, os.O_DIRECTORY)
        name = path.name or "."
        try:
            existing = open_path(name, os.O_NOFOLLOW)
        except FileNotFoundError:
            return _Target(folder, name, None)
        status = os.fstat(existing)
        if not stat.S_ISLNK(status.st_mode):
            return _Target(folder, name, existing)
        if status.st_uid not in {0, os.geteuid()}:
            owner = user_name(status.st_uid)
            raise OSError(errno.EPERM, f"a link of user {owner}; name another file")
        if status.st_dev == Path("/proc/self").stat().st_dev:
            followed = open_path(name, 0)  # /dev/stdout may lead to a pipe, which has no path
            if not _is_regular(followed):
                return _Target(folder, name, followed)
        path = Path(os.readlink("", dir_fd=existing))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _path_of(descriptor: int) -> Path:
    """Return a path of an open file, which stays the same even if another file gets its name."""
    return Path(f"/proc/self/fd/{descriptor}")


@contextmanager
def _errors_naming(path: Path, temporary: Path | str) -> Iterator[None]:
    """Replace a temporary path by `path` in errors, and name `path` in errors without a file."""
    try:
        yield
    except OSError as error:
        nameless = error.filename is None and error.errno in _OF_WRITES
        if error.errno is None or not (nameless or str(temporary) in str(error)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def reason(error: OSError) -> str:
    """Return why a file cannot be used, and the remedy, without the file's name."""
    text = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    if error.errno == errno.ENOENT and isinstance(error.filename, str):
        folder = Path(error.filename).parent
        if not folder.exists():
            remedy = f"create the folder {folder}, or check the path"
    return f"{text}; {remedy}" if remedy else text


def user_name(number: int) -> str:
    """Return the name of a user of the operating system, or its number if it has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container
        return str(number)


def csv_cell(text: str) -> str:
    """Escape a text for a CSV file, so that no spreadsheet treats it as a formula.

    A text that begins with a formula character or with an apostrophe gets an apostrophe before it.
    A program that removes one apostrophe restores the text. Do not pass numbers to this function.
    """
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def read_regular_file(path: Path, *, private: bool = False) -> bytes:
    """Return the content of a regular file, without ever waiting for another process.

    Args:
        path: The file. A pipe, a socket, a device or a folder is refused.
        private: Whether to refuse a file that every user of the machine may read.

    Raises:
        OSError: the file cannot be read, or is refused; `strerror` gives the reason and a remedy.
    """
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        require_regular_file(path, os.fstat(file.fileno()), private=private)
        return file.read()


def require_regular_file(path: Path, status: os.stat_result, *, private: bool = False) -> None:
    """Check that a file is regular and, if `private`, not readable by every user.

    Args:
        path: The file, for the error message.
        status: The file's status.
        private: Whether to refuse a file that every user of the machine may read.

    Raises:
        OSError: the file is refused; `strerror` gives the reason and a remedy.
    """
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, _NOT_PLAIN, str(path))
    if private and status.st_mode & stat.S_IROTH:
        raise OSError(
            errno.EPERM,
            "it holds a secret, and every user of this machine may read it "
            f"(mode {stat.S_IMODE(status.st_mode):o}): chmod o-rwx {path}",
            str(path),
        )


def open_for_writing(
    path: str, flags: int, *, folder: int | None = None, apart: Iterable[Path] = ()
) -> int:
    """Open a regular file or a device for writing, without ever waiting for a reader.

    The function serves as `opener` of `open`. Another user may be able to write the folder.
    Therefore a symbolic link is not followed, a file with a second hard link is refused, and
    nothing is truncated before the descriptor has been checked.

    Args:
        path: The file.
        flags: Flags as for `os.open`.
        folder: Descriptor of an open folder in which the last part of the path is looked up; None:
            the path itself is looked up.
        apart: Files that must not be the same file as `path`.

    Raises:
        OSError: the file cannot be opened, or is refused; `strerror` gives the reason and a remedy.
    """
    full_path = Path(path)
    name = full_path if folder is None else Path(full_path.name)
    descriptor = _opened(name, (flags & ~os.O_TRUNC) | os.O_NOFOLLOW, folder)
    try:
        _require_alone(name, descriptor, folder, apart)
        if flags & os.O_TRUNC:
            empty(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def require_writable(path: Path) -> None:
    """Check that an existing file is regular and can be written, without a change of the file.

    Raises:
        OSError: the file cannot be written; `strerror` gives the reason and a remedy.
    """
    with os.fdopen(_opened(path, os.O_RDWR), "rb") as file:
        require_regular_file(path, os.fstat(file.fileno()))


def require_creatable(path: Path, *, makes_folder: bool = False) -> None:
    """Check that files can be created in the folder of a path, without creating a file.

    Args:
        path: The path.
        makes_folder: Whether the program creates missing folders above the path.

    Raises:
        OSError: no file can be created; `strerror` gives the reason and a remedy.
    """
    folder = path.absolute().parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if not folder.is_dir():
        raise OSError(errno.EINVAL, f"{folder} is not a folder; name another", str(path))
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise OSError(
            errno.EPERM,
            f"user {user_name(os.geteuid())} cannot write the folder {folder}; change its "
            "permissions, or name another folder",
            str(path),
        )


def require_own_folder(path: Path) -> None:
    """Check that only root and this process's user can replace files in the folder of a path.

    The folder's mode must forbid writing by others, and its owner must be root or this process's
    user. Root may check folders of all users. Only private groups of these users may write. A
    missing folder passes.

    Args:
        path: The path.

    Raises:
        OSError: another user can write the folder; `strerror` gives the reason and a remedy.
    """
    folder = path.absolute().parent
    try:
        status = folder.stat()
    except FileNotFoundError:
        return
    if status.st_mode & stat.S_IWOTH:
        raise OSError(
            errno.EPERM,
            f"every user of this machine can write the folder {folder}: chmod o-w {folder}, or "
            "name another folder",
            str(path),
        )
    if os.geteuid() not in {0, status.st_uid} and status.st_uid != 0:
        raise OSError(
            errno.EPERM,
            f"the folder {folder} belongs to user {user_name(status.st_uid)}, so this user could "
            "replace the file; name another folder",
            str(path),
        )
    if status.st_mode & stat.S_IWGRP:
        users = {0, os.geteuid(), status.st_uid}
        group = _shared_group(status.st_gid, {user_name(user) for user in users})
        if group is not None:
            raise OSError(
                errno.EPERM,
                f"members of the group {group} can write the folder {folder}: chmod g-w {folder}, "
                "or name another folder",
                str(path),
            )


def _shared_group(number: int, users: set[str]) -> str | None:
    """Return the name of a group with other users; None for a private group.

    Debian creates a private group for each user, with the user's name. A group without a name
    counts as private, because volumes of containers have such groups.

    Args:
        number: The group's number.
        users: Names of the permitted users.
    """
    try:
        group = grp.getgrgid(number)
    except KeyError:
        return None
    return None if {group.gr_name, *group.gr_mem} <= users else group.gr_name


def empty(descriptor: int) -> None:
    """Truncate an open file to length 0; a device is left unchanged.

    Raises:
        OSError: the file cannot be truncated.
    """
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.ftruncate(descriptor, 0)


def _require_alone(name: Path, descriptor: int, folder: int | None, apart: Iterable[Path]) -> None:
    """Check that an open file is regular, has no second hard link, and is not in `apart`.

    Args:
        name: The file's path; relative to `folder` if given.
        descriptor: Descriptor of the open file.
        folder: Descriptor of the folder, or None.
        apart: Files that must not be the same file.

    Raises:
        OSError: the file is refused.
    """
    status = os.fstat(descriptor)
    if stat.S_ISCHR(status.st_mode):
        return
    require_regular_file(name, status)
    named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if named.st_nlink != 1 or not os.path.samestat(named, status):
        raise OSError(errno.EMLINK, "it has another name, too (a hard link); name another", name)
    for service_file in apart:
        with suppress(FileNotFoundError):
            if os.path.samestat(service_file.stat(), status):
                message = f"it is also {service_file}; give each a path of its own"
                raise OSError(errno.EINVAL, message)


def _opened(path: Path, flags: int, folder: int | None = None) -> int:
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe without a reader
            raise OSError(errno.EINVAL, _NOT_PLAIN, str(path)) from error
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "a symbolic link; name the file by where it lies") from error
        raise
