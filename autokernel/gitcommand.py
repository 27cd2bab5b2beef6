"""Git as a process: GitPython's command layer, out of reach of settings and variables around it.

A person's configuration (hooks, signing, line endings, templates) and the ``GIT_*`` variables of
the process must neither break a run nor lead it into another repository.  Failures become errors
of ours.  Which commands are called is the history's business.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from autokernel.errors import BackendUnavailable, RunDamaged, RunUnwritable

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # a missing git is reported by for_folder, not at import
import git

__all__ = ["FALLBACK_IDENTITY", "for_folder", "identity", "run"]

FALLBACK_IDENTITY = ("AutoKernel", "autokernel@localhost")
"""Name and address of the commits where git knows nobody."""


def for_folder(folder: Path) -> git.Git:
    """Git for the repository in ``folder``, and for no other.

    Raises:
        BackendUnavailable: git is not installed.
    """
    if shutil.which("git") is None:
        raise BackendUnavailable("git is not installed, and every experiment is a commit; apt-get install git")
    inner = folder / ".git"
    command = git.Git(str(folder))
    command.update_environment(
        GIT_DIR=str(inner),
        GIT_COMMON_DIR=str(inner),
        GIT_WORK_TREE=str(folder),
        GIT_INDEX_FILE=str(inner / "index"),
        GIT_OBJECT_DIRECTORY=str(inner / "objects"),
        GIT_ALTERNATE_OBJECT_DIRECTORIES="",
        GIT_NAMESPACE="",
        GIT_PREFIX="",
        GIT_GRAFT_FILE=str(inner / "info" / "grafts"),
        GIT_SHALLOW_FILE=str(inner / "shallow"),
        GIT_REPLACE_REF_BASE="refs/replace/",
        GIT_CONFIG=str(inner / "config"),
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_SYSTEM=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
        GIT_ATTR_NOSYSTEM="1",
        GIT_CONFIG_PARAMETERS="",
        GIT_CONFIG_COUNT="0",
        GIT_DEFAULT_HASH="sha1",
        GIT_DEFAULT_REF_FORMAT="files",
        GIT_TERMINAL_PROMPT="0",
        GIT_OPTIONAL_LOCKS="0",
        GIT_LITERAL_PATHSPECS="1",
        GIT_EXTERNAL_DIFF="",
        GIT_PAGER="cat",
    )
    return command


def run(command: git.Git, *arguments: str, stdin: str | None = None) -> bytes:
    """Run git once and return its output.

    Args:
        command: From `for_folder`.
        arguments: The git command and its arguments.
        stdin: Text for its standard input.

    Raises:
        RunUnwritable: The repository cannot be written.
        RunDamaged: git failed for another reason; the message is git's.
    """
    call = ["git", "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", *arguments]
    moment = f"{int(time.time())} +0000"
    with contextlib.ExitStack() as stack:
        source = None
        if stdin is not None:
            source = stack.enter_context(tempfile.TemporaryFile())
            source.write(stdin.encode("utf-8", "replace"))
            source.seek(0)
        try:
            status, out, err = command.execute(
                call,
                istream=source,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                env={"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment},
                start_new_session=True,  # Ctrl-C is for us; git finishes what it is at
            )
        except git.GitCommandNotFound as error:
            raise BackendUnavailable(f"git could not be started: {error}; is it installed?") from None
    if status != 0:
        raise _failure(str(command.working_dir), arguments, int(status), str(err))
    assert isinstance(out, bytes)
    return out


_UNWRITABLE = (
    "Permission denied",
    "Read-only file system",
    "No space left",
    "insufficient permission",
    "File too large",
)


def _failure(folder: str, arguments: tuple[str, ...], status: int, stderr: str) -> RunDamaged | RunUnwritable:
    what = f"git {arguments[0]} failed in {folder} (status {status}): {stderr.strip() or 'no message'}"
    if status == -signal.SIGXFSZ or any(text in stderr for text in _UNWRITABLE):
        return RunUnwritable(f"{what}; free some space or make the folder writable, and run again: the run continues")
    return RunDamaged(f"{what}; nothing was lost: look at it with `git -C {folder} fsck`, then run again")


def identity() -> tuple[str, str, str]:
    """The person's name and address as git knows them on this machine, or AutoKernel's with a note."""
    name = os.environ.get("GIT_AUTHOR_NAME") or _personal("user.name")
    email = os.environ.get("GIT_AUTHOR_EMAIL") or _personal("user.email")
    if name and email:
        return name, email, ""
    name, email = FALLBACK_IDENTITY
    return name, email, f"git knows no identity on this machine; commits of this run are by {name} <{email}>"


def _personal(key: str) -> str:
    hijacking = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG", "GIT_COMMON_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hijacking}
    answer = subprocess.run(["git", "config", "--get", key], cwd="/", env=environment, capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else ""
