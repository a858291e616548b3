"""A file defines a policy, and errors in the file are reported with file and line."""

import io
import os
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from allocator import plugins
from allocator.fairness import policies
from tests.plugins.written import LINE, NORM, file, key


def test_a_policy_in_twenty_lines_is_known_with_its_parameters_validated(tmp_path: Path) -> None:
    assert len([line for line in NORM.splitlines() if line]) <= 20
    assert plugins.load(file(tmp_path, NORM)) == ["norm"]
    made = plugins.create("norm", {"power": "3"})
    assert made.model_dump() == {"power": 3.0}
    assert policies.find("norm").model_fields["power"].description is not None
    with pytest.raises(ValueError, match=r"'norm': power: it must be greater .*parameters: power"):
        plugins.create("norm", {"power": 0})
    with pytest.raises(ValueError, match=r"powr: there is no such setting; did you mean power"):
        plugins.create("norm", {"powr": 2})


def test_a_file_runs_once_and_again_after_a_change(tmp_path: Path) -> None:
    path = file(tmp_path, NORM)
    plugins.load(path)
    before = policies.find("norm")
    plugins.load(path)
    assert policies.find("norm") is before
    file(tmp_path, NORM + "\n# changed\n")
    plugins.load(path)
    assert policies.find("norm") is not before


def test_a_file_may_define_several_policies_and_unnamed_base_classes(tmp_path: Path) -> None:
    base = NORM.replace('    name = "norm"\n', "") + "\nclass Two(Norm):\n    name = 'two'\n"
    source = base + "\nclass Three(Norm):\n    name = 'three'\n"
    assert plugins.load(file(tmp_path, source)) == ["two", "three"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = (\n", r"mine\.py, line 1: not valid Python"),
        ("import sys\n\n1 / 0\n", r"mine\.py, line 3: ZeroDivisionError: division by zero$"),
        (
            "import nowhere_at_all\n",
            r"line 1: .*install nowhere_at_all in the environment of Longshare",
        ),
        ("raise SystemExit(3)\n", r"line 1: SystemExit: 3"),
        ("x = 1\n", r"no policy is defined there; write a class with a name"),
        (NORM.replace('name = "norm"', 'name = "drf"'), r"Longshare has a policy 'drf'"),
        (NORM.replace('name = "norm"', 'name = "My Norm"'), r"small letters, digits and dashes"),
        (NORM.replace("name =", "name: str ="), r"write it without a type"),
        (NORM.replace("def key", "def kee"), r"class Norm: it lacks key"),
        (
            key("return 0.0", more="    tau = 3.0\n"),
            r"line 2: PydanticUserError: A non-annotated attribute",
        ),
        (
            key("return 0.0") + "    def priority(self, *_): return 0.0\n",
            r"Longshare provides 'priority'; define key or measure instead",
        ),
        (key("return 0.0", more="    queues = 3\n"), r"queues must be True or False"),
        (
            "from allocator.api import Policy\nclass Mine(Policy):\n    name = 'mine'\n",
            r"a policy is a KeyPolicy, a LinePolicy or an Sdrf",
        ),
        (key("return 0.0") + key("return 1.0").replace("Mine", "Other"), r"two classes have the"),
    ],
)
def test_errors_of_a_file_name_the_fault_and_the_remedy(
    tmp_path: Path, source: str, complaint: str
) -> None:
    known = policies.names()
    with pytest.raises(plugins.PolicyError, match=complaint) as caught:
        plugins.load(file(tmp_path, source))
    assert str(caught.value).startswith(str(tmp_path / "mine.py"))
    assert policies.names() == known


def test_a_missing_file_or_a_binary_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(plugins.PolicyError, match="No such file"):
        plugins.load(tmp_path / "none.py")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(plugins.PolicyError, match=r"bytes\.py"):
        plugins.load(tmp_path / "bytes.py")


def test_lines_that_drift_come_from_a_file_too(tmp_path: Path) -> None:
    assert plugins.load(file(tmp_path, LINE)) == ["toll"]
    assert plugins.create("toll", {"ranking": "scan"}).name == "toll"


def test_another_process_gets_the_same_policy_or_none(tmp_path: Path) -> None:
    path = file(tmp_path, NORM)
    plugins.load(path)
    origin = policies.find("norm").origin
    assert origin is not None
    policies._POLICIES.pop("norm")
    plugins.provide("norm", origin.file, origin.sha256)
    assert policies.find("norm").origin == origin
    policies._POLICIES.pop("norm")
    file(tmp_path, NORM + "\n")
    with pytest.raises(plugins.PolicyError, match="has changed meanwhile"):
        plugins.provide("norm", origin.file, origin.sha256)


class TestTrust:
    """The policy files of a service are writable only by its own user and root."""

    def test_a_file_owned_by_the_user_in_folders_owned_by_the_user_is_accepted(
        self, tmp_path: Path
    ) -> None:
        assert plugins.load_trusted(file(tmp_path.resolve(), NORM)) == ["norm"]

    @pytest.mark.parametrize("mode", [0o664, 0o646, 0o777, 0o1666])
    def test_a_file_writable_by_other_users_is_refused(self, tmp_path: Path, mode: int) -> None:
        path = file(tmp_path.resolve(), NORM)
        path.chmod(mode)
        with pytest.raises(
            plugins.PolicyError, match=rf"users other than its owner .*chmod go-w {path}"
        ):
            plugins.load_trusted(path)
        assert "norm" not in policies.names()

    def test_a_file_in_a_folder_writable_by_other_users_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path.resolve() / "open"
        (folder / "within").mkdir(parents=True)
        path = file(folder / "within", NORM)
        folder.chmod(0o777)
        with pytest.raises(plugins.PolicyError, match=rf"chmod go-w {folder}$"):
            plugins.load_trusted(path)
        folder.chmod(0o1777)  # sticky as /tmp: other users cannot rename our files
        assert plugins.load_trusted(path) == ["norm"]

    def test_a_hard_link_is_refused_in_a_folder_where_another_user_could_make_it(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path.resolve() / "open"
        folder.mkdir()
        path = folder / "policy.py"
        path.hardlink_to(file(tmp_path.resolve(), NORM))
        folder.chmod(0o1777)  # sticky as /tmp
        with pytest.raises(plugins.PolicyError, match="hard link"):
            plugins.load_trusted(path)
        folder.chmod(0o755)
        assert plugins.load_trusted(path) == ["norm"]

    def test_a_file_by_a_link_or_a_relative_path_is_refused(self, tmp_path: Path) -> None:
        path = file(tmp_path.resolve(), NORM)
        link = tmp_path.resolve() / "link.py"
        link.symlink_to(path)
        with pytest.raises(plugins.PolicyError, match=f"give the real path: {path}"):
            plugins.load_trusted(link)
        with pytest.raises(plugins.PolicyError, match="absolute path"):
            plugins.load_trusted(Path("mine.py"))

    @pytest.mark.parametrize("way", ["file", "link"])
    def test_a_file_replaced_by_another_user_during_the_check_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        """Puts another file in place before each system call, and removes the file afterwards."""
        folder = tmp_path.resolve()
        path, kept, unrelated = (folder / name for name in ("mine.py", "kept.py", "other.py"))
        for first, last in combinations(range(30), 2):
            for source in (path, kept, unrelated):
                source.unlink(missing_ok=True)
            file(folder, NORM.replace('name = "norm"', 'name = "evil"')).rename(unrelated)
            unrelated.chmod(0o666)
            file(folder, NORM)
            calls = 0

            def exchanging(call: Any, first: int = first, last: int = last) -> Any:  # noqa: ANN401
                def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
                    nonlocal calls
                    calls += 1
                    if calls == first + 1:
                        path.rename(kept)
                        path.symlink_to(unrelated) if way == "link" else os.link(unrelated, path)
                    if calls == last + 1:
                        kept.replace(path)
                    return call(*arguments, **named)

                return called

            with monkeypatch.context() as patch:
                for module, name in ((os, "open"), (os, "fstat"), (os, "stat"), (io, "open")):
                    patch.setattr(module, name, exchanging(getattr(module, name)))
                with suppress(plugins.PolicyError):
                    plugins.load_trusted(path)
            assert "evil" not in policies.names()

    def test_a_pipe_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path.resolve() / "mine.py"
        os.mkfifo(path)
        for load in (plugins.load, plugins.load_trusted):
            with pytest.raises(plugins.PolicyError, match="not a plain file"):
                load(path)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_a_file_of_another_user_is_refused(self, tmp_path: Path) -> None:
        path = file(tmp_path.resolve(), NORM)
        os.chown(path, 12345, -1)
        with pytest.raises(plugins.PolicyError, match=r"belongs to user 12345.*\(chown\)"):
            plugins.load_trusted(path)
