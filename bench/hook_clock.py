"""The plugin's handler with its hooks timed, one JSON line a request.

LiteLLM loads this file from beside its configuration, as `hook_clock.handler`, in place of the
plugin's own name. It changes the class, where LiteLLM looks some hooks up.
"""

import functools
import json
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omniroute_litellm import hooks

LOG: Final = Path(os.environ["HOOK_CLOCK_LOG"])
FIRST: Final = "async_pre_call_hook"
LAST: Final = "async_post_call_response_headers_hook"
TIMED: Final = (FIRST, "async_pre_call_deployment_hook", LAST)

Hook = Callable[..., Coroutine[Any, Any, object]]


@dataclass(slots=True)
class Clocked:
    """Milliseconds of one request: in each hook, and of each step between two awaits.

    ``steps`` are wall times, which hold whatever else ran on the machine; ``cpu_steps`` are the
    time that the thread of the event loop itself was running in them.
    """

    hooks: dict[str, float] = field(default_factory=dict[str, float])
    steps: list[float] = field(default_factory=list[float])
    cpu_steps: list[float] = field(default_factory=list[float])


CURRENT: Final[ContextVar[Clocked | None]] = ContextVar("hook_clock", default=None)


@types.coroutine
def stepped(
    coroutine: Coroutine[Any, Any, object], clocked: Clocked
) -> Generator[Any, Any, object]:
    """Await a coroutine and note how long each of its steps holds the event loop."""
    resume: Callable[[], Any] = functools.partial(coroutine.send, None)
    while True:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            awaited = resume()
        except StopIteration as end:
            return end.value
        finally:
            clocked.cpu_steps.append((time.thread_time() - cpu) * 1000)
            clocked.steps.append((time.perf_counter() - wall) * 1000)
        try:
            resume = functools.partial(coroutine.send, (yield awaited))
        except BaseException as error:  # handed on into the coroutine, which decides
            resume = functools.partial(coroutine.throw, error)


def timed(name: str, hook: Hook) -> Hook:
    """Wrap a hook so that its time counts for the request under way."""

    @functools.wraps(hook)
    async def call(*args: Any, **kwargs: Any) -> object:
        if name == FIRST:
            CURRENT.set(Clocked())
        clocked = CURRENT.get()
        if clocked is None:
            return await hook(*args, **kwargs)
        started = time.perf_counter()
        result = await stepped(hook(*args, **kwargs), clocked)
        spent = (time.perf_counter() - started) * 1000
        clocked.hooks[name] = clocked.hooks.get(name, 0.0) + spent
        if name == LAST:
            note(clocked)
        return result

    return call


def note(clocked: Clocked) -> None:
    """Append the times of one request."""
    line = {"hooks": clocked.hooks, "steps": clocked.steps, "cpu_steps": clocked.cpu_steps}
    with LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")


for timed_hook in TIMED:
    setattr(
        hooks.OmniRouteHandler,
        timed_hook,
        timed(timed_hook, getattr(hooks.OmniRouteHandler, timed_hook)),
    )
handler = hooks.handler
