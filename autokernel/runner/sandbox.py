"""Confine the current process before it runs code that an agent wrote.

Three levels, the strongest that the system allows is taken:

``namespaces``  own user, process, network, mount and IPC namespace: no network, no other process
                visible, file system read-only outside the scratch folder, home folders empty,
                capabilities dropped.  Killing the first process kills all that it started.
``landlock``    no namespaces, but the kernel's Landlock forbids writing outside the scratch folder and,
                from ABI 4 (Linux 6.7), TCP, from ABI 6 (6.12), signals to other processes.  Files can be
                read, other processes be seen, and UDP is open.
``process``     only what every level has: own session, resource limits, a clean environment, a
                supervisor that is the reaper of everything the candidate starts.

Linux only, standard library only: the system calls go through ctypes.
Source: namespaces(7), mount_setattr(2), landlock(7), capabilities(7), prctl(2).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import pwd
import resource
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "LEVELS",
    "clean_environment",
    "confine_files",
    "drop_privileges",
    "isolate",
    "level",
    "limit_folder",
    "limit_resources",
]

LEVELS = ("namespaces", "landlock", "process")

_CLONE_NEWNS, _CLONE_NEWIPC = 0x00020000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
_SYS_MOUNT_SETATTR, _SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 38, 24, 36
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CXX", "CC")
_KEPT_PREFIXES = (
    "CUDA_VISIBLE",
    "CUDA_DEVICE",
    "NVIDIA_",
    "ROCR_",
    "HIP_VISIBLE",
    "OPENBLAS_",
    "MKL_",
    "OMP_",
    "ROCM_",
)


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


@functools.cache
def level() -> str:
    """Return the strongest level that works here, found out by trying it in a child process."""
    if platform.system() != "Linux":
        return "process"
    for name in ("namespaces", "landlock"):
        if _works(name):
            return name
    return "process"


def _works(name: str) -> bool:
    scratch = Path(tempfile.mkdtemp(prefix="autokernel-probe-"))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if name == "namespaces":
                isolate()
                inner = os.fork()
                if inner == 0:
                    confine_files("namespaces", scratch, ())
                    limit_folder(scratch, size=1 << 20, files=100)
                    os._exit(0)
                status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
            else:
                drop_privileges()
                confine_files("landlock", scratch, ())
                status = 0
        except Exception:
            status = 1
        os._exit(1 if status else 0)
    works = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    scratch.rmdir()
    return works


def clean_environment(scratch: Path, extra: dict[str, str]) -> dict[str, str]:
    """The environment of a runner: a short list of harmless variables, and ``extra``."""
    kept = {
        name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }
    private = {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "AUTOKERNEL_CACHE_DIR": str(scratch / "cache"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "OMP_WAIT_POLICY": "passive",
    }
    return {**kept, **private, **extra}


def home_folders() -> list[str]:
    """The home folders of whoever runs this process: by the environment and by the password file."""
    folders = [os.path.expanduser("~")]
    try:
        folders.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user without an entry, as in some containers
        pass
    return [folder for folder in folders if os.path.isabs(folder)]


def isolate() -> None:
    """Move into new namespaces.  The next process that is forked is the first of its own.

    Raises:
        OSError: The system forbids it.
    """
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWIPC
    _check(_libc().unshare(flags), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def confine_files(name: str, scratch: Path, needed: Iterable[Path], homes: Iterable[Path] = ()) -> None:
    """Let this process write only below ``scratch``; under ``namespaces``, also hide home folders.

    Args:
        name: The level in force.
        scratch: The only folder that stays writable.
        needed: Files and folders that must stay readable even if they lie in a home folder.
        homes: Home folders besides root's.
    """
    if name == "namespaces":
        _read_only_mounts(scratch.resolve(), [path.resolve() for path in needed], [path.resolve() for path in homes])
    elif name == "landlock":
        _landlock(scratch.resolve())


def limit_folder(folder: Path, *, size: int, files: int) -> None:
    """Put an empty file system in memory over ``folder`` that holds at most ``size`` bytes and ``files`` files.

    Needs the ``namespaces`` level, before capabilities are dropped.
    """
    data = f"size={size},nr_inodes={files},mode=700"
    _mount("none", str(folder.resolve()), "tmpfs", _MS_NOSUID | _MS_NODEV, data)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    result = _libc().mount(*encoded, ctypes.c_ulong(flags), None if data is None else data.encode())
    _check(result, f"mount {target}")


def _set_read_only(path: str, on: bool, recursive: bool) -> None:
    attributes = _MountAttr(set=_MOUNT_ATTR_RDONLY if on else 0, clear=0 if on else _MOUNT_ATTR_RDONLY)
    result = _libc().syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        path.encode(),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"mount_setattr {path}")


def _read_only_mounts(scratch: Path, needed: list[Path], homes: list[Path]) -> None:
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount(str(scratch), str(scratch), None, _MS_BIND | _MS_REC)
    _set_read_only("/", True, recursive=True)
    _set_read_only(str(scratch), False, recursive=False)
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV)
    except OSError:  # some containers forbid it; then /proc shows the outer processes' names
        pass
    for home in {Path("/root"), *homes}:
        _hide(home.resolve(), [scratch, *needed])
    for entry in Path("/dev").iterdir():
        # A read-only mount does not keep its owner from writing a disk through its device.
        if not entry.is_symlink() and entry.is_block_device() and os.access(entry, os.R_OK | os.W_OK):
            _mount("/dev/null", str(entry), None, _MS_BIND)


def _hide(folder: Path, needed: list[Path]) -> None:
    """Cover ``folder`` with a file system that holds nothing but what is needed, at its old place."""
    if not folder.is_dir() or folder in (Path("/"), Path("/tmp")) or folder in needed:
        return
    inside = [path for path in needed if folder in path.parents and path.exists()]
    opened = [(path, path.is_dir(), os.open(path, os.O_PATH)) for path in inside]
    _mount("none", str(folder), "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for path, is_folder, handle in opened:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            path.mkdir(exist_ok=True)
        else:
            path.touch()
        _mount(f"/proc/self/fd/{handle}", str(path), None, _MS_BIND | _MS_REC)
        os.close(handle)
    _set_read_only(str(folder), True, recursive=False)


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def _landlock(scratch: Path) -> None:
    """Forbid every write and creation outside ``scratch`` and devices; where the kernel can, TCP and signals too.

    Compilers' caches rename files from one folder to another, so a kernel that knows no such right
    (ABI 1) will not do.  Source: landlock(7).
    """
    libc = _libc()
    create, no_size = ctypes.c_long(_SYS_LANDLOCK_CREATE), ctypes.c_size_t(0)
    abi = libc.syscall(create, None, no_size, ctypes.c_uint(1))  # LANDLOCK_CREATE_RULESET_VERSION
    if abi < 2:
        raise OSError(ctypes.get_errno(), f"landlock ABI {abi}; 2 is needed")
    writes = sum(1 << bit for bit in (1, *range(4, 14)))  # write, remove, make each kind of file, rename across
    if abi >= 3:
        writes |= 1 << 14  # truncate
    attributes = _RulesetAttr(writes, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = libc.syscall(create, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    into_files = writes & (1 << 1 | 1 << 14)
    devices = [entry for entry in Path("/dev").iterdir() if not entry.is_symlink() and not entry.is_block_device()]
    for place, rights in [
        (scratch, writes),
        *[(entry, writes if entry.name == "shm" else into_files) for entry in devices],
    ]:
        try:
            parent = os.open(place, os.O_PATH)
        except OSError:  # a device that has gone
            continue
        rule = _PathBeneath(rights, parent)
        result = libc.syscall(
            ctypes.c_long(_SYS_LANDLOCK_ADD),
            ctypes.c_int(ruleset),
            ctypes.c_int(1),
            ctypes.byref(rule),
            ctypes.c_uint(0),
        )
        _check(result, f"landlock_add_rule {place}")
        os.close(parent)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(
        libc.syscall(ctypes.c_long(_SYS_LANDLOCK_RESTRICT), ctypes.c_int(ruleset), ctypes.c_uint(0)),
        "landlock_restrict_self",
    )
    os.close(ruleset)


def drop_privileges() -> None:
    """Give up every capability for good, and the right to gain any by running a program."""
    libc = _libc()
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def limit_resources(*, address_space: int | None, file_bytes: int) -> None:
    """Set limits on memory (bytes beyond what is mapped now; None for none) and on file sizes."""
    if address_space is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + address_space
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that forked it ends."""
    _libc().prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def become_reaper() -> None:
    """Become the parent of every orphaned descendant, so that none can escape."""
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
