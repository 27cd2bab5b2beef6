"""The errors that AutoKernel raises, all under one base.

A candidate that is wrong, slow, crashes or hangs is no error: it is a `Verdict`.  What stands here
stops the work, and says what happened, the value, and what to do.
"""

__all__ = [
    "AgentUnavailable",
    "AutokernelError",
    "BackendUnavailable",
    "CompileError",
    "DeviceUnavailable",
    "InvalidKernel",
    "InvalidSpec",
    "ModelFailed",
    "RunBusy",
    "RunDamaged",
    "RunUnwritable",
    "RunnerLost",
    "UnknownDevice",
    "UnknownOperation",
    "UsageError",
]


class AutokernelError(Exception):
    """Base of every error that AutoKernel raises on purpose."""


class UsageError(AutokernelError):
    """A call or a command line that cannot be carried out as given."""


class UnknownOperation(UsageError):
    """No operation of that name is known."""


class InvalidSpec(UsageError):
    """A `KernelSpec` that cannot be used, or that accepts wrong answers."""


class InvalidKernel(UsageError):
    """A kernel file that does not follow the contract; raised only before it is run."""


class ModelFailed(UsageError):
    """A person's model that does not run on the inputs that were given with it."""


class BackendUnavailable(AutokernelError):
    """The compiler or package that a backend needs is missing."""


class CompileError(AutokernelError):
    """A kernel's C++ or CUDA text that does not compile; the message gives the lines of that text."""


class DeviceUnavailable(AutokernelError):
    """The device that was asked for is not there."""


class UnknownDevice(AutokernelError):
    """No datasheet figures are known for the device."""


class RunnerLost(AutokernelError):
    """No runner process could be started or kept, so nothing can be judged."""


class AgentUnavailable(AutokernelError):
    """The server of a language model refuses, or did not answer for as long as it was asked again."""


class RunBusy(AutokernelError):
    """Another process is driving the run."""


class RunDamaged(AutokernelError):
    """The run folder cannot be continued as it is."""


class RunUnwritable(AutokernelError):
    """The run folder cannot be written: it is read-only, or the disk is full."""
