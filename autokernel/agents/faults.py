"""What a failed request to a language model's server means: ask again, when, or give up.

Asked again is what may pass: 408, 409, 425, 429 and 5xx, a connection that breaks or never comes about,
a stream that ends early or holds something else than JSON.  A wait that the server asks for
(``Retry-After``, RFC 9110 section 10.2.3, in seconds or as a date; ``retry-after-ms``) is honoured.
"""

from __future__ import annotations

import asyncio
import dataclasses
import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

from autokernel.plaintext import one_line

__all__ = ["Fault", "fault_of", "refused_option"]

_PASSING = (408, 409, 425, 429)
_FOR_GOOD = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_UNWANTED = re.compile(
    r"(un|not |n't )(support|known|recogni[sz]ed|expected|permitted|allowed)|extra (inputs|fields)|invalid param",
    re.IGNORECASE,
)
_ADVICE = {
    401: "the server does not accept the key; see key_variable in agent.toml",
    403: "the key may not use this model",
    404: "check the model's name and that base_url ends as the server wants it, mostly in /v1",
    413: "lower prompt_tokens in agent.toml",
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """Why a request brought no answer.

    Attributes:
        message: In a sentence, without the key.
        again: Asking again may help.
        wait_seconds: How long the server asks to wait, or None.
        status: The HTTP status, or 0 without one.
        advice: What a person can do about it, or "".
    """

    message: str
    again: bool = True
    wait_seconds: float | None = None
    status: int = 0
    advice: str = ""


def fault_of(error: Exception, key: str) -> Fault | None:
    """What an exception of the client means; None for one that is no fault of the server or the line.

    Args:
        error: What was raised.
        key: To be left out of the message.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        return _of_status(error, key)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError, openai.APITimeoutError)):
        return Fault("no answer in time")
    if isinstance(error, openai.APIConnectionError):
        return Fault(f"the connection failed: {_said(error.__cause__ or error, key)}")
    if isinstance(error, openai.APIError):
        return Fault(f"the server reported an error: {_said(error, key)}")
    if isinstance(error, ValueError):
        return Fault(f"the server sent what is no JSON: {_said(error, key)}")
    if isinstance(error, OSError) or type(error).__module__.split(".")[0].startswith("http"):
        return Fault(f"the connection failed: {_said(error, key)}")
    return None


def refused_option(fault: Fault, options: Mapping[str, Any]) -> str:
    """The option of a request that the server does not know or want, or ""; a value too large is no such case."""
    if fault.status not in (400, 422) or not _UNWANTED.search(fault.message):
        return ""
    named = [name for name in options if name in fault.message]
    return max(named, key=len, default="")


def _of_status(error: Any, key: str) -> Fault:
    status = int(error.status_code)
    again = (status in _PASSING or status >= 500) and error.code not in _FOR_GOOD
    advice = _ADVICE.get(status, "")
    if status == 400 and re.search(r"context|too (long|large|many)|tokens", str(error), re.IGNORECASE):
        advice = "lower prompt_tokens or answer_tokens in agent.toml"
    if not again and status == 429:
        advice = "the account is out of credit"
    wait = _asked_wait(error.response.headers) if again else None
    return Fault(f"HTTP {status}: {_said(error, key)}", again, wait, status, advice)


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds, from the headers of a response, or None."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
            return seconds if 0 <= seconds < 1e9 else None
        except ValueError:
            continue
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, moment.timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _said(error: BaseException, key: str) -> str:
    text = str(error) or type(error).__name__
    return one_line(text.replace(key, "[key]") if key else text, limit=400)
