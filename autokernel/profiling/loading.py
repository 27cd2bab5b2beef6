"""A model from the text of a command line: a file and class, a module and callable, a configuration, a program.

| text | model |
|---|---|
| ``model.py:Net`` | a class, or a function that returns a model; made without arguments, or with those of ``--arg`` |
| ``package.module:make`` | the same from an importable module |
| ``hf:config.json``, ``hf:folder`` | a Hugging Face configuration, with random weights; nothing is downloaded |
| ``program.pt2`` | a program that ``torch.export.save`` wrote |
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from autokernel.errors import BackendUnavailable, UsageError
from autokernel.hints import did_you_mean
from autokernel.ops.spec import DTYPES

__all__ = ["Loaded", "load", "make_inputs"]

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<sizes>\d+(?:x\d+)*|scalar)(?::(?P<dtype>\w+))?")
_DTYPES = {**DTYPES, "float64": torch.float64, "int64": torch.int64, "int32": torch.int32, "bool": torch.bool}


@dataclasses.dataclass
class Loaded:
    """A model, and inputs if it came with some; ``vocabulary`` bounds integer inputs."""

    model: Any
    inputs: Any = None
    vocabulary: int = 0


def load(text: str, arguments: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> Loaded:
    """Make the model that ``text`` names.

    Args:
        text: See the table above.
        arguments: Keyword arguments of the class or function, or fields of the configuration.
        folder: Importable modules are looked for here first; the current folder by default.

    Raises:
        UsageError: It names nothing that can be loaded; the message says what is missing.
        BackendUnavailable: A configuration, but transformers is not installed.
    """
    arguments = dict(arguments or {})
    if text.startswith("hf:"):
        return _from_configuration(Path(text[3:]), arguments)
    if text.endswith(".pt2"):
        if arguments:
            raise UsageError("an exported program takes no arguments; leave --arg out")
        return _from_program(Path(text))
    where, colon, name = text.rpartition(":")
    if not colon or not where:
        raise UsageError(f"{text!r} names no model; write FILE.py:CLASS, MODULE:CALLABLE, hf:FOLDER or PROGRAM.pt2")
    module = _module(where, folder or Path.cwd())
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            known = [
                key for key, value in vars(module).items() if callable(value) and value.__module__ == module.__name__
            ]
            hint = did_you_mean(name, known)
            raise UsageError(f"{where} has no {name!r}{hint}; it defines: {', '.join(known) or 'nothing to call'}")
    if isinstance(found, nn.Module):
        return Loaded(found, *_examples(module, found))
    if not callable(found):
        raise UsageError(
            f"{text} is a {type(found).__name__}; name a class, a function that makes a model, or a module"
        )
    try:
        model = found(**arguments)
    except TypeError as error:
        raise UsageError(f"{name} cannot be made: {error}; pass its arguments with --arg NAME=VALUE") from error
    if not callable(model):
        raise UsageError(f"{text} returned a {type(model).__name__}, which is no model")
    return Loaded(model, *_examples(module, model))


def _defined(module: ModuleType) -> list[str]:
    """Names of the classes and functions of a module's own."""
    own = [(name, value) for name, value in vars(module).items() if callable(value)]
    return [name for name, value in own if getattr(value, "__module__", "") == module.__name__]


def _examples(module: ModuleType, model: Any) -> tuple[Any, int]:
    """Inputs from the file's ``example_inputs``, if it has that, and the model's number of tokens."""
    vocabulary = int(getattr(model, "vocabulary", 0) or 0)
    maker = getattr(module, "example_inputs", None)
    if maker is None:
        return None, vocabulary
    takes = inspect.signature(maker).parameters
    return maker(**({"vocabulary": vocabulary} if vocabulary and "vocabulary" in takes else {})), vocabulary


def _module(where: str, folder: Path) -> ModuleType:
    if where.endswith(".py"):
        file = Path(where).resolve()
        if not file.is_file():
            raise UsageError(f"there is no file {where!r}; give the path of the Python file that defines the model")
        spec = importlib.util.spec_from_file_location(f"autokernel_model_{file.stem}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        return _executed(lambda: spec.loader.exec_module(module) or module, where, file.parent)  # type: ignore[union-attr]
    return _executed(lambda: importlib.import_module(where), where, folder)


def _executed(run: Callable[[], ModuleType], where: str, folder: Path) -> ModuleType:
    with _importable(folder):
        try:
            return run()
        except ModuleNotFoundError as error:
            raise UsageError(f"cannot import {where}: {error}; is it installed, and the folder right?") from error
        except Exception as error:
            raise UsageError(f"{where} failed on import: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _from_configuration(path: Path, arguments: dict[str, Any]) -> Loaded:
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"there is no configuration at {str(file)!r}; give a config.json or the folder that holds it")
    try:
        import transformers
    except ImportError:
        raise BackendUnavailable(
            "a Hugging Face configuration needs transformers; pip install 'autokernel[hf]'"
        ) from None
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        kind = fields.pop("model_type")
        names = fields.get("architectures") or []
        configuration = transformers.AutoConfig.for_model(kind, **{**fields, **arguments})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is no Hugging Face configuration with a known model_type: {error}") from error
    maker = getattr(transformers, names[0], None) if names else None
    if maker is not None:
        model = maker(configuration)
    else:
        model = transformers.AutoModel.from_config(configuration)
    return Loaded(model, None, int(getattr(configuration, "vocab_size", 0) or 0))


def _from_program(path: Path) -> Loaded:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}; write it with torch.export.save")
    try:
        program = torch.export.load(str(path))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(f"{path} is no program of torch.export that this PyTorch reads: {first}") from error
    inputs = program.example_inputs
    given = None if inputs is None else (inputs[0] if not inputs[1] else {**_positional(inputs[0]), **inputs[1]})
    return Loaded(program.module(), given)


def _positional(args: Sequence[Any]) -> dict[str, Any]:
    if args:
        raise UsageError("the program has positional and keyword inputs; export it with one kind")
    return {}


def make_inputs(
    texts: Sequence[str], *, dtype: torch.dtype, device: torch.device, vocabulary: int = 0, seed: int = 0
) -> tuple[Tensor, ...] | dict[str, Tensor]:
    """Random inputs from texts such as ``4x2048:int64`` or ``input_ids=1x128:int64``.

    Floating-point inputs are standard normal; integers lie below ``vocabulary``, or are 0 and 1 without one;
    booleans are all True.  Without a dtype an input has the model's.

    Raises:
        UsageError: A text cannot be read, or some inputs have a name and others none.
    """
    generator = torch.Generator().manual_seed(seed)
    named: dict[str, Tensor] = {}
    plain: list[Tensor] = []
    for text in texts:
        found = _INPUT.fullmatch(text)
        kind = None if found is None else _DTYPES.get(found["dtype"] or "", None if found["dtype"] else dtype)
        if found is None or kind is None:
            raise UsageError(
                f"cannot read the input {text!r}; write sizes and dtype as 4x2048:int64, or NAME=4x2048:int64 "
                f"(dtypes: {', '.join(_DTYPES)})"
            )
        sizes = () if found["sizes"] == "scalar" else tuple(int(size) for size in found["sizes"].split("x"))
        tensor = _random(sizes, kind, vocabulary, generator).to(device)
        if found["name"]:
            named[found["name"]] = tensor
        else:
            plain.append(tensor)
    if named and plain:
        raise UsageError("name all inputs or none: NAME=SIZES:DTYPE for keyword arguments, SIZES:DTYPE by position")
    return named or tuple(plain)


def _random(sizes: tuple[int, ...], kind: torch.dtype, vocabulary: int, generator: torch.Generator) -> Tensor:
    if kind == torch.bool:
        return torch.ones(sizes, dtype=kind)
    if not kind.is_floating_point:
        return torch.randint(vocabulary or 2, sizes, generator=generator).to(kind)
    return torch.randn(sizes, generator=generator).to(kind)
