from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autokernel.errors import BackendUnavailable, RunDamaged
from autokernel.history import EXPERIMENTS, History, blob_id

TRACKED = {"kernel.py": "A = 1\n", "target.toml": "x = 1\n"}


def make(folder: Path) -> History:
    folder.mkdir(parents=True, exist_ok=True)
    return History.create(folder, "autokernel/run", TRACKED, "Baseline\n\nExperiment: 0\n")[0]


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout


def test_a_commit_moves_nothing_until_references_are_set(tmp_path):
    history = make(tmp_path)
    start = history.head()
    commit = history.commit("A = 2\n", start, "Two\n\nExperiment: 1\n")

    assert history.head() == start
    history.set_refs({f"{EXPERIMENTS}/1": commit, history.branch: commit})
    assert history.head() == history.ref(f"{EXPERIMENTS}/1") == commit
    assert history.source(commit) == "A = 2\n"
    assert "-A = 1\n+A = 2\n" in history.diff(start, commit)
    assert history.file(commit, "target.toml") == "x = 1\n"


def test_rewording_keeps_tree_and_parent(tmp_path):
    history = make(tmp_path)
    commit = history.commit("A = 2\n", history.head(), "Two\n")
    other = history.reworded(commit, "Two, kept\n\nDecision: keep\n")

    assert git(tmp_path, "show", "-s", "--format=%T %P", other) == git(tmp_path, "show", "-s", "--format=%T %P", commit)
    assert git(tmp_path, "show", "-s", "--format=%(trailers:key=Decision,valueonly)", other).strip() == "keep"


def test_a_first_commit_can_be_reworded(tmp_path):
    history = make(tmp_path)
    commit = history.reworded(history.head(), "Baseline, judged\n")
    history.set_refs({history.branch: commit})
    assert git(tmp_path, "rev-list", "--count", "autokernel/run").strip() == "1"


@pytest.mark.parametrize("text", ["", "é 漢 \u2028\n", "no newline", "a\r\nb\r\n", "\ttabs\t\n" * 5000, "$Id$\n"])
def test_a_kernel_comes_back_byte_for_byte(tmp_path, text):
    history = make(tmp_path)
    commit = history.commit(text, history.head(), "x\n")

    assert history.source(commit) == text
    assert history.kernel_blob(commit) == blob_id(text)
    history.set_refs({history.branch: commit})
    history.restore()
    assert (tmp_path / "kernel.py").read_bytes().decode() == text
    assert git(tmp_path, "status", "--porcelain") == ""


def test_nothing_but_kernel_and_target_is_tracked(tmp_path):
    make(tmp_path)
    (tmp_path / ".autokernel").mkdir()
    (tmp_path / ".autokernel" / "x").write_text("x")
    (tmp_path / "results.tsv").write_text("x")

    assert git(tmp_path, "ls-files").split() == ["kernel.py", "target.toml"]
    assert git(tmp_path, "status", "--porcelain") == ""


def test_settings_hooks_and_variables_around_it_do_not_matter(tmp_path, monkeypatch):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "commit-msg", "reference-transaction", "post-checkout", "post-index-change"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "config").write_text(
        f"[core]\nhooksPath = {hooks}\nautocrlf = true\n[commit]\ngpgSign = true\n[gpg]\nprogram = /bin/false\n"
        f"[init]\ntemplateDir = {tmp_path}\ndefaultBranch = other\n[user]\nname = Ada\nemail = ada@example.org\n"
        "[extensions]\nobjectFormat = sha256\n[commit]\ntemplate = /nowhere\n"
    )
    other = tmp_path / "other"
    make(other)
    before = git(other, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hooks),
        "GIT_AUTHOR_DATE": "nonsense",
        "GIT_EDITOR": "/bin/false",
    }.items():
        monkeypatch.setenv(name, value)

    history = make(tmp_path / "run")
    commit = history.commit("A = 2\r\n", history.head(), "Two\n")
    history.set_refs({history.branch: commit})
    history.restore()

    for name in [name for name in os.environ if name.startswith("GIT_") and name != "GIT_CONFIG_GLOBAL"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert git(tmp_path / "run", "rev-parse", "autokernel/run").strip() == commit
    assert git(tmp_path / "run", "show", "-s", "--format=%an <%ae>", commit).strip() == "Ada <ada@example.org>"
    assert (tmp_path / "run" / "kernel.py").read_bytes() == b"A = 2\r\n"
    assert git(other, "rev-parse", "HEAD") == before
    assert git(other, "status", "--porcelain") == ""


def test_a_repository_around_the_run_is_left_alone(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "mine.py").write_text("x")
    history = make(tmp_path / "runs" / "run")
    history.set_refs({history.branch: history.commit("A = 2\n", history.head(), "Two\n")})

    assert git(tmp_path, "for-each-ref") == ""
    assert git(tmp_path, "status", "--porcelain").splitlines() == ["?? mine.py", "?? runs/"]
    assert git(tmp_path / "runs" / "run", "rev-list", "--count", "autokernel/run").strip() == "2"


def test_without_an_identity_commits_are_made_and_a_note_says_by_whom(tmp_path):
    history, note = History.create(tmp_path, "autokernel/run", TRACKED, "Baseline\n")

    assert "AutoKernel <autokernel@localhost>" in note
    assert git(tmp_path, "show", "-s", "--format=%ce", history.head()).strip() == "autokernel@localhost"


def test_a_persons_text_is_kept_under_a_reference(tmp_path):
    history = make(tmp_path)
    name = history.save_edit("# mine\n", history.head(), "Edit\n")

    assert name.startswith("refs/autokernel/edits/")
    assert history.source(name) == "# mine\n"


def test_what_a_killed_git_left_locked_is_removed(tmp_path):
    history = make(tmp_path)
    lock = tmp_path / ".git" / "refs" / "heads" / "autokernel" / "run.lock"
    lock.touch()
    with pytest.raises(RunDamaged, match="nothing was lost"):
        history.set_refs({history.branch: history.commit("A = 2\n", history.head(), "Two\n")})

    history.drop_stale_locks()
    history.set_refs({history.branch: history.commit("A = 2\n", history.head(), "Two\n")})
    assert history.source(history.branch) == "A = 2\n"


def test_a_missing_revision_and_a_missing_git_are_said_to_be_missing(tmp_path, monkeypatch):
    history = make(tmp_path)
    assert not history.exists("0" * 40)
    with pytest.raises(RunDamaged):
        history.source("0" * 40)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendUnavailable, match="git is not installed"):
        History(tmp_path, "autokernel/run")
