"""The runner's own loop: load a kernel, call it, time it, as the judge asks.

One process per candidate.  It starts ready (torch and triton imported by the zygote), confines
itself, initialises the device and waits.  It holds the inputs of the call at hand and nothing that
would tell it the right answer.

Requests: ``load``, ``baseline``, ``call``, ``recheck``, ``endure``, ``recall``, ``large``, ``inspect``,
``inputs``, ``amend``, ``prepare``, ``time``, ``call_time``, ``spin``, ``kept``.  Each gets one answer.  Addresses
of tensors in requests are offsets into the arena, in bytes.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autokernel.runner import protocol

__all__ = ["preload", "serve"]

_clock = time.perf_counter
_thread_count: Callable[[], int] = _thread._count


def preload(device: str) -> None:
    """Import what every runner needs.  Runs once, in the zygote; starts no thread, touches no GPU."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    import autokernel.backends.cpp  # noqa: F401
    from autokernel import ops, timing  # noqa: F401
    from autokernel.runner import kernels, recorder, repeated, sentinel, snapshot  # noqa: F401

    for name in ops.names():  # a module that is there already cannot be planted
        ops.get(name)
    # PyTorch imports and patches parts of itself at the first observed call: have that behind us.
    torch.set_grad_enabled(False)
    with recorder.Recorder(sentinel.Watch(), poison=0):
        torch.empty(8).clone().to(torch.bfloat16)
    try:
        import triton
        import triton.language
        import triton.testing  # noqa: F401
    except ImportError:
        return
    if device == "cpu":
        from autokernel.runner import interpreter

        interpreter.pass_floats_as_scalars()
        interpreter.provide_libdevice()
        interpreter.patch_once()
        globals()["_bfloat16_repaired"] = interpreter.repair_bfloat16()


_bfloat16_repaired = False


def serve(sock: socket.socket, arena: protocol.Arena, device: str, scratch: Path) -> None:
    """Answer the judge's requests until it closes the socket."""
    runner = _Runner(arena, device, scratch)
    protocol.send(sock, {"ready": True, "bfloat16": device != "cpu" or _bfloat16_repaired, **runner.facts()})
    while True:
        try:
            request, _fds = protocol.receive(sock)
        except protocol.Closed:
            return
        protocol.send(sock, runner.answer(request))


def _warm_up(device: Any) -> None:
    """Initialise the GPU, PyTorch's kernels and Triton's compiler, so that no candidate waits for it."""
    import torch

    torch.empty(1024, device=device).fill_(1).view(torch.uint8).cpu()
    try:
        from autokernel.runner import warmup

        warmup.launch(torch.empty(1024, device=device))
    except ImportError:  # no triton
        pass
    torch.cuda.synchronize()


def _shared_memory(device: Any) -> Any:
    """Return what fills shared memory with garbage, or None where there is no NVIDIA GPU or no NVRTC."""
    import torch

    if device.type != "cuda" or torch.version.cuda is None:
        return None
    from autokernel.errors import AutokernelError

    try:
        from autokernel.runner import scrub

        memory = scrub.SharedMemory(device)
        memory.fill(0)
        torch.cuda.synchronize()
    except (ImportError, AutokernelError):
        return None
    return memory


def _new_threads(before: int) -> list[tuple[str, str]]:
    """A finding if more Python threads run now than ``before``."""
    new = _thread_count() - before
    return [("thread_left", f"{new} threads that the candidate started run on")] if new > 0 else []


class _Runner:
    def __init__(self, arena: protocol.Arena, device: str, scratch: Path) -> None:
        import torch

        from autokernel.runner import sentinel, snapshot

        self.torch = torch
        self.arena = arena
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(arena.map))
        self.device = torch.device(device)
        self.scratch = scratch
        self.functions: dict[str, Any] = {}
        self.files: dict[str, Path] = {}
        self.sets: list[list[Any]] = []
        self.held: dict[int, Any] = {}
        self.mirrors: dict[int, Any] = {}
        self.slots: dict[int, list[tuple[Any, Any]]] = {}
        if self.device.type == "cuda":
            torch.cuda.init()
            torch.cuda.set_device(self.device)
            _warm_up(self.device)
        torch.set_grad_enabled(False)
        self.watch = sentinel.Watch()
        self.watch.trap_host_access()
        self.shared_memory = _shared_memory(self.device)
        self.snapshot = snapshot.Snapshot()

    def facts(self) -> dict[str, Any]:
        return {
            "python": sys.version.split()[0],
            "torch": self.torch.__version__,
            "poisons_shared_memory": self.shared_memory is not None,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        from autokernel.runner import kernels

        try:
            return {"ok": True, **getattr(self, f"do_{request['op']}")(request)}
        except kernels.LoadError as error:
            return {"ok": False, "kind": error.kind, "error": str(error)[:6000], **self._integrity()}
        except SystemExit as error:
            return {"ok": False, "kind": "exit", "error": f"kernel_fn left with SystemExit({error.code!r})"}
        except BaseException as error:
            message = kernels.describe_exception(error, self.files.get(request.get("role", "candidate")))
            return {"ok": False, "kind": "exception", "error": message, **self._integrity()}

    # Loading

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write a kernel's text into the scratch folder and import it under a role."""
        from autokernel.runner import kernels

        role = request["role"]
        file = self.scratch / f"{role}.py"
        file.write_text(request["source"])
        self.files[role] = file
        if role == "candidate":
            self.watch.suspect(str(file))
        threads = _thread_count()
        self.functions[role], backend = kernels.load(file, inputs=request["inputs"], options=request["options"])
        lacks = kernels.lacking(self.functions[role], request["optional"])
        return {"backend": backend, "lacks": lacks, "findings": [*self.watch.findings, *_new_threads(threads)]}

    def do_baseline(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load the operation's own PyTorch baseline, and if asked its compiled form."""
        from autokernel import ops

        spec = ops.resolve(request["reference"])
        baseline = spec.baseline or spec.reference
        self.functions["pytorch"] = baseline
        if request.get("compiled"):
            mode = "max-autotune-no-cudagraphs" if self.device.type == "cuda" else "default"
            self.functions["compile"] = self.torch.compile(baseline, mode=mode)
        return {}

    # Calling

    def tensor(self, description: dict[str, Any], *, copy: bool) -> tuple[Any, Any]:
        """Build an input from the arena: a view of it or, on a GPU, of its mirror; with ``copy``, memory of its own.

        Returns:
            The input, and the bytes that hold it: its guard bands too unless it is a copy on the CPU.
        """
        torch = self.torch
        dtype = getattr(torch, description["dtype"])
        guard = 0 if copy and self.device.type == "cpu" else protocol.GUARD_BYTES
        start, count = description["offset"] - guard, description["bytes"] + 2 * guard
        raw = torch.frombuffer(self.arena.map, dtype=torch.uint8, count=count, offset=start)
        if copy:
            raw = raw.to(self.device, copy=True)
        elif self.device.type != "cpu":
            raw = self._mirror(raw, start)
        typed = raw[guard : guard + description["bytes"]].view(dtype)
        value = typed.as_strided(
            description["size"], description["stride"], typed.storage_offset() + description["start"]
        )
        return value, raw

    def _mirror(self, raw: Any, start: int) -> Any:
        """Copy bytes of the arena to the device, to where those from the same offset lay before.

        So addresses come again with other content, as they do on a CPU.
        """
        from autokernel.runner import repeated

        mirror = self.mirrors.get(start)
        if mirror is None or mirror.numel() < raw.numel():
            mirror = self.mirrors[start] = self.torch.empty(raw.numel(), dtype=self.torch.uint8, device=self.device)
        repeated.write(mirror[: raw.numel()], raw)
        return mirror[: raw.numel()]

    def do_call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call a kernel once on fresh inputs, under observation, and hand back its output's bytes.

        ``observe`` names the observer: ``dispatch`` or ``profile`` (see `autokernel.runner.recorder`), or ``nobody``.
        """
        from autokernel.runner import recorder as observers

        torch = self.torch
        private = request.get("private", False)
        built = [self.tensor(one, copy=True) for one in request["inputs"]] if private else self._inputs(request)
        inputs = [value for value, _raw in built]
        function = self.functions[request["role"]]
        recorder = observers.Recorder(self.watch, poison=request["poison"])
        self.watch.host_elements = 0
        memory = self._memory()
        if self.shared_memory is not None and request["poison"] is not None:
            self.shared_memory.fill(request["poison"])
        threads = _thread_count()
        begin = _clock()
        with self.watch.blaming():
            call = functools.partial(function, *inputs, **request["options"])
            if request["observe"] == "profile":
                output, recorder.computed = observers.operators(call)
            else:
                with recorder if request["observe"] == "dispatch" else contextlib.nullcontext():
                    output = call()
        self._synchronize()
        seconds = _clock() - begin
        peak = self._peak_since(memory)
        problems = self._output_problems(output, [raw for _value, raw in built])
        answer: dict[str, Any] = {
            "seconds": seconds,
            "peak_bytes": peak,
            "findings": problems + recorder.trespasses() + _new_threads(threads),
            "computed": recorder.computed,
            "host_elements": recorder.host_elements + self.watch.host_elements,
            "device_bytes": int(torch.cuda.memory_allocated()) if self.device.type == "cuda" else 0,
        }
        if isinstance(output, torch.Tensor):
            answer["output"] = self._export(output, request["out"])
            if request.get("hold") is not None:
                self.held[request["hold"]] = output.detach()  # the memory, not the tensor that was handed out
        else:
            answer["returned"] = type(output).__name__
        if private or self.device.type != "cpu":
            guard = 0 if self.device.type == "cpu" else protocol.GUARD_BYTES
            for (_value, raw), description in zip(built, request["inputs"], strict=True):
                self._write(raw, description["offset"] - guard)
        answer["findings"] += list(self.watch.findings)
        return answer

    def do_inspect(self, request: dict[str, Any]) -> dict[str, Any]:
        """Report what the candidate has caused and replaced so far."""
        return self._integrity()

    def do_recheck(self, request: dict[str, Any]) -> dict[str, Any]:
        """Export an output of an earlier call again: it must not have changed since."""
        self._synchronize()
        return {"output": self._export(self.held[request["hold"]], request["out"])}

    def do_endure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Repeat calls on private copies of a few input sets, and export the latest output for each."""
        from autokernel.runner import repeated

        sets = [[self.tensor(one, copy=True)[0] for one in inputs] for inputs in request["sets"]]
        seen, outputs = repeated.endure(
            self.functions[request["role"]],
            sets,
            request["options"],
            calls=request["calls"],
            seconds=request["seconds"],
        )
        self._synchronize()
        exported = [
            self._export(output, place) if isinstance(output, self.torch.Tensor) else {}
            for output, place in zip(outputs, request["out"], strict=True)
        ]
        return {**seen, "outputs": exported}

    def do_recall(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time calls on content that is new, and on the same content again; export the latest output."""
        from autokernel.runner import repeated

        inputs = [self.tensor(one, copy=True)[0].contiguous() for one in request["inputs"]]
        seen, output = repeated.recall(
            self.functions[request["role"]],
            inputs,
            request["options"],
            seeds=request["seeds"],
            seconds=request["seconds"],
            wait=self._synchronize,
        )
        exported = self._export(output, request["out"]) if isinstance(output, self.torch.Tensor) else {}
        return {**seen, "output": exported}

    def do_large(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call a kernel on a block of rows repeated many times, and export a few rows of the result."""
        torch = self.torch
        inputs = [self.tensor(one, copy=True)[0] for one in request["inputs"]]
        free = request["free"]
        for index in request["tiled"]:
            inputs[index], free = self._repeated(inputs[index], request["rows"], free)
        begin = _clock()
        output = self.functions[request["role"]](*inputs, **request["options"])
        self._synchronize()
        seconds = _clock() - begin
        if not isinstance(output, torch.Tensor) or output.dim() == 0 or output.shape[0] != request["rows"]:
            return {"seconds": seconds, "size": list(output.shape) if isinstance(output, torch.Tensor) else None}
        picked = output[torch.tensor(request["samples"], device=output.device)]
        answer = {"seconds": seconds, "size": list(output.shape), "output": self._export(picked, request["out"])}
        del inputs, output, picked
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return answer

    def _repeated(self, block: Any, rows: int, offset: int) -> tuple[Any, int]:
        """Repeat ``block`` until there are ``rows``; on a CPU in the arena, whose pages the judge frees."""
        size = (rows, *block.shape[1:])
        count = rows * block[0].numel() * block.element_size()
        if self.device.type == "cpu":
            raw = self.torch.frombuffer(self.arena.map, dtype=self.torch.uint8, count=count, offset=offset)
            whole = raw.view(block.dtype).view(size)
        else:
            whole = self.torch.empty(size, dtype=block.dtype, device=self.device)
        whole[: block.shape[0]] = block[:rows]
        done = block.shape[0]
        while done < rows:  # a multiple of the block is there already
            part = whole[done : 2 * done]
            part.copy_(whole[: part.shape[0]])
            done *= 2
        return whole, -(-(offset + count) // 4096) * 4096

    def _inputs(self, request: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Build a call's inputs, or rewrite those of its slot in place, so that they keep their identity."""
        from autokernel.runner import repeated

        slot = request.get("slot")
        fresh = [self.tensor(description, copy=False) for description in request["inputs"]]
        if slot is None:
            return fresh
        kept = self.slots.setdefault(slot, fresh)
        if kept is not fresh and self.device.type != "cpu":
            for (_value, old), (_fresh_value, new) in zip(kept, fresh, strict=True):
                repeated.write(old, new)
        return kept

    def _output_problems(self, output: Any, memory: list[Any]) -> list[tuple[str, str]]:
        torch = self.torch
        if type(output) is not torch.Tensor:
            if isinstance(output, torch.Tensor):
                return [("tensor_subclass", f"the output is a {type(output).__name__}, not a plain torch.Tensor")]
            return []
        found = []
        attributes = sorted(vars(output))
        if attributes:
            found.append(("instance_attributes", f"the output carries attributes of its own: {attributes[:8]}"))
        if output.layout is not torch.strided or torch.Tensor.numel(output) == 0:
            return found
        if any(size > 1 and stride == 0 for size, stride in zip(output.shape, output.stride(), strict=True)):
            found.append(("output_aliases_itself", f"elements of the output share memory: strides {output.stride()}"))
        storage = torch.Tensor.untyped_storage(output)
        begin, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        for index, raw in enumerate(memory):
            if begin < raw.data_ptr() + raw.numel() and raw.data_ptr() < end:
                found.append(("output_aliases_input", f"the output lies in the memory of input {index}"))
        return found

    def _export(self, output: Any, place: dict[str, Any]) -> dict[str, Any]:
        torch = self.torch
        facts = {
            "dtype": str(output.dtype).removeprefix("torch."),
            "size": list(output.shape),
            "device": output.device.type,
            "layout": str(output.layout).removeprefix("torch."),
            "bytes": output.numel() * output.element_size(),
        }
        readable = output.layout is torch.strided and output.device.type == self.device.type
        if readable and facts["bytes"] <= place["capacity"]:
            contiguous = torch.Tensor.contiguous(torch.Tensor.detach(output))
            self._write(contiguous.reshape(-1).view(torch.uint8) if facts["bytes"] else contiguous, place["offset"])
        return facts

    def _write(self, value: Any, offset: int) -> None:
        if value.numel() == 0:
            return
        host = value.cpu()
        ctypes.memmove(self.base + offset, host.data_ptr(), host.numel() * host.element_size())

    def _integrity(self) -> dict[str, Any]:
        return {"findings": [*self.watch.findings, *self.snapshot.changes(self.watch.files)]}

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def _memory(self) -> int:
        if self.device.type == "cuda":
            self.torch.cuda.reset_peak_memory_stats()
            return int(self.torch.cuda.memory_allocated())
        return 0

    def _peak_since(self, before: int) -> int:
        if self.device.type == "cuda":
            return int(self.torch.cuda.max_memory_allocated()) - before
        return 0

    # Timing

    def do_inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take input sets for timing: private copies, rewritten in place when they exist already."""
        from autokernel.runner import repeated

        fresh = [[self.tensor(one, copy=True)[0] for one in inputs] for inputs in request["sets"]]
        if request["rewrite"]:
            for old, new in zip(self.sets, fresh, strict=True):
                for target, source in zip(old, new, strict=True):
                    repeated.write(target, source)
        else:
            self.sets = fresh
        self._synchronize()
        return {}

    def do_amend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Change single elements of the input sets for timing; each input has its places and their new values."""
        from autokernel.runner import repeated

        for inputs, changes in zip(self.sets, request["sets"], strict=True):
            for index, value in enumerate(inputs):
                places, values = (self.tensor(one, copy=True)[0] for one in changes[2 * index : 2 * index + 2])
                repeated.amend(value, places, values)
        self._synchronize()
        return {}

    def do_prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Warm the contestants up and, on a GPU, capture their graphs."""
        from autokernel import timing

        contestants = {role: self.functions[role] for role in request["roles"]}
        self.timer = timing.make_timer(contestants, self.sets, request["options"], self.device)
        return {"method": self.timer.method, "notes": self.timer.notes, "calls": self.timer.calls_per_sample}

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take interleaved samples; keep the outputs of some calls until the judge asks for them."""
        chosen = {"keep_set": request["keep_set"], "keep": request["keep"]}
        return {"samples_us": self.timer.sample(rounds=request["rounds"], seed=request["seed"], **chosen)}

    def do_kept(self, request: dict[str, Any]) -> dict[str, Any]:
        """Export the outputs that were kept, each with the number of its input set."""
        outputs: list[dict[str, Any]] = []
        for (set_index, output), place in zip(self.timer.kept, request["out"], strict=False):
            facts = {"set": set_index}
            if isinstance(output, self.torch.Tensor):
                facts.update(self._export(output, place))
            outputs.append(facts)
        return {"outputs": outputs}

    def do_call_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take interleaved samples of the time that a caller sees."""
        return {"samples_us": self.timer.call_samples(rounds=request["rounds"], seed=request["seed"])}

    def do_spin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a contestant ``calls`` times and synchronize; the judge holds the watch.  Keeps the last outputs."""
        return {"seconds": self.timer.spin(request["role"], request["calls"], request["keep"])}
