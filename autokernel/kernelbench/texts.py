"""The texts that a problem becomes: its spec file, the kernel to start from, and a candidate's ``kernel_fn``."""

from __future__ import annotations

import ast
import pprint

from autokernel.errors import InvalidKernel
from autokernel.kernelbench.examine import Facts

__all__ = ["adapted", "spec_text", "starter"]

_SPEC = """

# What stands above is the problem as it was; what follows was added by `autokernel kernelbench new`.
from autokernel.ops.problem import problem_spec

SPEC = problem_spec(
    globals(),
{settings}
)
"""

_STARTER = '''

class ModelNew(Model):
    """Where the work begins: the problem's own model, which leaves all work to PyTorch.

    Write this class, or kernel_fn, so that kernels of its own do the work.
    """
'''

_ADAPTER = """

# What follows was added by autokernel: it calls ModelNew with the weights that the judge gives.
from autokernel.ops import modelnew as _modelnew

{constants}
{arguments}_model_new = _modelnew.as_function(
    ModelNew,
    {made_with},
    {weights},
    training={training},
)


def kernel_fn({parameters}):
    return _model_new([{call}], [{given}])
"""

_EXECUTED = """_problem = {{"__name__": "problem"}}
exec({text!r}, _problem)
"""


def spec_text(problem: str, facts: Facts) -> str:
    """The text of a spec file: the problem, and what is known about it."""
    lines = [
        f"{word}={pprint.pformat(value, width=100, sort_dicts=False)}," for word, value in facts.settings().items()
    ]
    settings = "\n".join("    " + line.replace("\n", "\n    ") for line in lines)
    return problem.rstrip("\n") + "\n" + _SPEC.format(settings=settings)


def starter(problem: str, facts: Facts, backend: str) -> str:
    """The first kernel.py: the problem's own model under the name ``ModelNew``."""
    return adapted(problem.rstrip("\n") + "\n" + _STARTER, problem, facts, backend)


def adapted(candidate: str, problem: str, facts: Facts, backend: str) -> str:
    """A candidate's text as a kernel.py: as it is if it defines ``kernel_fn``, else with what calls its ``ModelNew``.

    Args:
        candidate: The text.
        problem: Of the problem file.
        facts: About it.
        backend: What the text is taken to be written in if it does not say so.

    Raises:
        InvalidKernel: It is no Python, or defines neither.
    """
    try:
        body = ast.parse(candidate, "the candidate").body
    except (SyntaxError, ValueError) as error:
        raise InvalidKernel(f"the candidate is no Python: {error}") from error
    defined = _defined(body)
    if "kernel_fn" in defined:
        return candidate
    if "ModelNew" not in defined:
        raise InvalidKernel("the candidate defines neither ModelNew nor kernel_fn; define one of them")
    stated = {"KERNEL_TYPE": facts.name, "BACKEND": backend}
    constants = "\n".join(f'{word} = "{value}"' for word, value in stated.items() if word not in defined)
    options = [f"{word}={value!r}" for word, (_place, value) in facts.scalars.items()]
    return candidate.rstrip("\n") + "\n" + _ADAPTER.format(
        constants=constants + "\n" if constants else "",
        arguments="" if facts.made_with else _EXECUTED.format(text=problem),
        made_with=facts.made_with or '_problem["get_init_inputs"]()',
        weights={word: tuple(size) for word, size in facts.weights.items()},
        training=facts.training,
        parameters=", ".join([*facts.inputs, *facts.parameters, *options]),
        call=facts.arguments,
        given=", ".join(facts.parameters),
    )  # fmt: skip


def _defined(body: list[ast.stmt]) -> set[str]:
    """The names that statements define: functions, classes, plain assignments, imports."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            found.add(statement.name)
        elif isinstance(statement, ast.Assign):
            found |= {one.id for one in statement.targets if isinstance(one, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.add(statement.target.id)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {one.asname or one.name for one in statement.names}
    return found
