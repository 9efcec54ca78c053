"""Read what the hook clock wrote."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HookTimes:
    """Milliseconds inside of the plugin's hooks: in all for each request, and of each step."""

    totals: list[float]
    by_hook: dict[str, list[float]]
    steps: list[float]
    cpu_steps: list[float]


def read_hook_times(log: Path, *, after: int = 0) -> HookTimes:
    """Read the lines of the hook clock that follow the first so many."""
    lines = [json.loads(line) for line in log.read_text().splitlines()[after:]]
    by_hook: dict[str, list[float]] = {}
    for line in lines:
        for name, spent in line["hooks"].items():
            by_hook.setdefault(name, []).append(spent)
    return HookTimes(
        totals=[sum(line["hooks"].values()) for line in lines],
        by_hook=by_hook,
        steps=[step for line in lines for step in line["steps"]],
        cpu_steps=[step for line in lines for step in line["cpu_steps"]],
    )
