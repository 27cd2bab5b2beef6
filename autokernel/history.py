"""The experiments of a run as git commits, in a repository of the run's own.

Every candidate is a commit before it is judged, under ``refs/autokernel/experiments/<n>``.  The
branch ``autokernel/<tag>`` and the working copy of ``kernel.py`` only ever show the best verified
kernel: a kept commit is put on the branch, another never was on it.  Commits are made from objects
(``commit-tree``), so neither hooks, nor signing, nor the index, nor a repository around the run
folder has a part in them, and the variables ``GIT_*`` of the process are overridden.

What is kept is the session's question; how git is called, that of `gitcommand`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from hashlib import sha1
from pathlib import Path

from autokernel import files, gitcommand
from autokernel.errors import RunDamaged, RunUnwritable

__all__ = ["EDITS", "EXPERIMENTS", "History", "blob_id"]

EXPERIMENTS = "refs/autokernel/experiments"
EDITS = "refs/autokernel/edits"
KERNEL = "kernel.py"
_EXCLUDED = "/results.tsv\n/agent.toml\n/.autokernel/\n/progress.*\n"


def blob_id(text: str | bytes) -> str:
    """Git's hash of a file's content, without calling git."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class History:
    """The git repository of one run folder.

    Args:
        folder: The run folder, which holds ``.git``.
        branch: Name of the run's branch, such as ``autokernel/rmsnorm-1``.

    Raises:
        RunDamaged: The folder is no git repository.
        BackendUnavailable: git is not installed.
    """

    def __init__(self, folder: Path, branch: str) -> None:
        self.folder = folder.resolve()
        self.branch = f"refs/heads/{branch}"
        if not (self.folder / ".git" / "HEAD").is_file():
            raise RunDamaged(
                f"{folder} has no git repository of its own any more (.git is missing or broken); restore it from a "
                f"copy, or start a new run from {folder / KERNEL}"
            )
        self._command = gitcommand.for_folder(self.folder)
        self._has_identity = False

    @classmethod
    def create(cls, folder: Path, branch: str, tracked: Mapping[str, str], message: str) -> tuple[History, str]:
        """Make the repository with one commit that holds the files ``tracked``, and write these files.

        Returns:
            The history, and a note on the git identity that it uses, or "".

        Raises:
            RunUnwritable: The folder cannot be written.
            BackendUnavailable: git is not installed.
        """
        command = gitcommand.for_folder(folder.resolve())
        gitcommand.run(command, "init", "--quiet", "--template=", f"--initial-branch={branch}")
        info = folder / ".git" / "info"
        info.mkdir(exist_ok=True)
        files.write_atomic(info / "exclude", _EXCLUDED)
        files.write_atomic(info / "attributes", "* -text -filter -ident\n")
        name, email, note = gitcommand.identity()
        for key, value in (
            ("user.name", name),
            ("user.email", email),
            ("commit.gpgSign", "false"),
            ("core.autocrlf", "false"),
            ("core.fsync", "committed,reference"),
            ("gc.auto", "0"),
        ):
            gitcommand.run(command, "config", key, value)
        history = cls(folder, branch)
        entries = {path: history._store(text) for path, text in tracked.items()}
        commit = history._commit(history._tree(entries), [], message)
        history.set_refs({history.branch: commit})
        for path, text in tracked.items():
            files.write_atomic(folder / path, text)
        history.sync_index()
        return history, note

    # Reading

    def head(self) -> str:
        """The commit on the run's branch."""
        commit = self.ref(self.branch)
        if commit is None:
            raise RunDamaged(f"{self.folder} has lost its branch {self.branch}; see `git -C {self.folder} branch -a`")
        return commit

    def ref(self, name: str) -> str | None:
        """The commit that a reference points to, or None."""
        return self.refs().get(name)

    def refs(self) -> dict[str, str]:
        """All branches and all references of AutoKernel, with their commits."""
        listing = self._git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/autokernel")
        return dict(line.split(" ", 1) for line in listing.splitlines())

    def exists(self, commit: str) -> bool:
        """True if the commit's objects are there."""
        try:
            self._git("cat-file", "-e", f"{commit}^{{commit}}")
        except RunDamaged:
            return False
        return True

    def source(self, revision: str) -> str:
        """The text of ``kernel.py`` at a revision.

        Raises:
            RunDamaged: There is no such revision.
        """
        return self.file(revision, KERNEL)

    def file(self, revision: str, path: str) -> str:
        """The text of a tracked file at a revision."""
        return self._bytes("cat-file", "blob", f"{revision}:{path}").decode("utf-8", "replace")

    def kernel_blob(self, revision: str) -> str:
        """The blob id of kernel.py at a revision; "" if it has none."""
        try:
            return self._git("rev-parse", "--verify", "--quiet", f"{revision}:{KERNEL}")
        except RunDamaged:
            return ""

    def diff(self, old: str, new: str) -> str:
        """The unified diff of ``kernel.py`` between two revisions; "" if they are equal."""
        return self._bytes("diff-tree", "-p", "--no-color", "--no-ext-diff", old, new, "--", KERNEL).decode(
            "utf-8", "replace"
        )

    # Writing: objects first, which change nothing that anybody sees, then references

    def commit(self, source: str, parent: str, message: str) -> str:
        """Make a commit with ``source`` as kernel.py on top of ``parent``; no reference is moved.

        Raises:
            RunUnwritable: The repository cannot be written.
        """
        listing = self._git("ls-tree", parent)
        entries = {line.split("\t", 1)[1]: line.split("\t", 1)[0] for line in listing.splitlines()}
        entries[KERNEL] = self._store(source)
        return self._commit(self._tree(entries), [parent], message)

    def reworded(self, commit: str, message: str) -> str:
        """Make a commit with the same tree and parents as ``commit`` and another message."""
        tree, *parents = self._git("show", "-s", "--format=%T %P", commit).split()
        return self._commit(tree, parents, message)

    def set_refs(self, targets: Mapping[str, str]) -> None:
        """Point references at commits, all of them in one transaction of git.

        Raises:
            RunUnwritable: The repository cannot be written.
        """
        lines = "".join(f"update {name} {commit}\n" for name, commit in targets.items())
        self._git("update-ref", "--create-reflog", "--stdin", stdin=lines)

    def save_edit(self, text: str, parent: str, message: str) -> str:
        """Commit a person's text under ``refs/autokernel/edits/<time>`` and return that reference."""
        return self.keep_commit(self.commit(text, parent, message))

    def keep_commit(self, commit: str) -> str:
        """Point a new reference ``refs/autokernel/edits/<time>`` at a commit and return its name."""
        name = f"{EDITS}/{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%S.%fZ')}"
        self.set_refs({name: commit})
        return name

    # The working copy

    def working_text(self) -> str | None:
        """What stands in the folder's ``kernel.py``, or None if it is missing."""
        try:
            return (self.folder / KERNEL).read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def restore(self) -> None:
        """Make the folder's ``kernel.py`` that of the branch.

        Raises:
            RunUnwritable: The folder cannot be written.
        """
        files.write_atomic(self.folder / KERNEL, self._bytes("cat-file", "blob", f"{self.head()}:{KERNEL}"))
        self.sync_index()

    def sync_index(self) -> None:
        """Make plain ``git status`` tell the truth; a locked index is left for the next time."""
        with contextlib.suppress(RunDamaged, RunUnwritable):
            self._git("read-tree", self.branch)
            self._git("update-index", "-q", "--refresh")

    def attach(self) -> str:
        """Put HEAD back on the run's branch; returns where it was, or "" if it was there."""
        head = (self.folder / ".git" / "HEAD").read_text().strip()
        if head == f"ref: {self.branch}":
            return ""
        self._git("symbolic-ref", "HEAD", self.branch)
        return head.removeprefix("ref: refs/heads/")

    def drop_stale_locks(self) -> None:
        """Remove what a killed git left locked among the references that only AutoKernel writes."""
        root = self.folder / ".git"
        stale = [root / f"{self.branch}.lock", root / "packed-refs.lock", *(root / "refs/autokernel").rglob("*.lock")]
        for lock in stale:
            with contextlib.suppress(FileNotFoundError):
                while time.time() - lock.stat().st_mtime < 1.0:  # its git may still be at work
                    time.sleep(0.1)
                lock.unlink()

    def _adopt_identity(self) -> None:
        """Commit as the repository's own configuration says, whatever the process's variables say."""
        name, email = (
            self._setting(key) or fallback
            for key, fallback in zip(("user.name", "user.email"), gitcommand.FALLBACK_IDENTITY, strict=True)
        )
        self._command.update_environment(
            GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email, GIT_COMMITTER_NAME=name, GIT_COMMITTER_EMAIL=email
        )
        self._has_identity = True

    def _setting(self, key: str) -> str:
        return self._git("config", "--default", "", "--get", key)

    def _store(self, text: str) -> str:
        """Store a file's content; returns its entry in a tree, without the path."""
        blob = self._git("hash-object", "-w", "--no-filters", "--stdin", stdin=text)
        return f"100644 blob {blob}"

    def _tree(self, entries: Mapping[str, str]) -> str:
        return self._git("mktree", stdin="".join(f"{entry}\t{path}\n" for path, entry in sorted(entries.items())))

    def _commit(self, tree: str, parents: list[str], message: str) -> str:
        if not self._has_identity:
            self._adopt_identity()
        options = [option for parent in parents for option in ("-p", parent)]
        return self._git("commit-tree", tree, *options, "-F", "-", stdin=message.replace("\0", " "))

    def _git(self, *arguments: str, stdin: str | None = None) -> str:
        return self._bytes(*arguments, stdin=stdin).decode("utf-8", "replace").strip()

    def _bytes(self, *arguments: str, stdin: str | None = None) -> bytes:
        return gitcommand.run(self._command, *arguments, stdin=stdin)
