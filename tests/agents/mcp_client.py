"""A client of `autokernel mcp`, which runs in a process of its own."""

from __future__ import annotations

import contextlib
import json
import sys

import pytest

from tests.command_line import COMMAND, environment

mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")


@contextlib.asynccontextmanager
async def client_of(run):
    """A client that is connected to a server of the run."""
    server = mcp.StdioServerParameters(command=sys.executable, args=[*COMMAND[1:], "mcp", str(run)], env=environment())
    async with mcp.Client(server, read_timeout_seconds=200) as client:
        yield client


def text_of(result) -> str:
    return "\n".join(part.text for part in result.content)


async def data(client, tool, **arguments):
    """What a tool returns, as data."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return json.loads(text_of(result)) if text_of(result).startswith("{") else text_of(result)
