"""Real coding agents, one sentence each, against the proxy: they work, and they are remembered.

`make agents` runs these where `claude` and `codex` are installed. Nothing leaves the machine: the
models are played by the fake provider, and every other address leads to a closed port.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.proxy.chatting import HEADING, blocks_in, memories, wait_idle, wait_learned
from tests.proxy.client_bodies import (
    ANSWER,
    FILE_TEXT,
    FOLLOW_UP,
    LEARNED_CONTENT,
    LEARNED_KEY,
    STATEMENT,
)
from tests.proxy.process import Proxy
from tests.upstream import Upstream
from tests.upstream_answers import ToolCall

pytestmark = pytest.mark.agents

RUN_TIMEOUT_S: Final = 120.0
NOWHERE: Final = "http://127.0.0.1:9"
CUT_OFF: Final = {
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
}
CODEX_CONFIG: Final = """
model = "gpt"
model_provider = "loopback"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false  # their catalogue is fetched at start

[model_providers.loopback]
name = "loopback"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
"""

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Agent:
    """How one agent is called: first run, a run that goes on with it, settings, a tool of its own.

    `prepare` writes what the agent reads at start into its home and returns its environment.
    """

    binary: str
    begin: tuple[str, ...]
    resume: tuple[str, ...]
    prepare: Callable[[Path, Proxy, str], Environment]
    tool: Callable[[Path], ToolCall]


def prepare_claude(home: Path, proxy: Proxy, key: str) -> Environment:
    """Point Claude Code at the proxy, for its small model as well."""
    return {
        "ANTHROPIC_BASE_URL": proxy.url,
        "ANTHROPIC_AUTH_TOKEN": key,
        "ANTHROPIC_MODEL": "claude",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude",
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def prepare_codex(home: Path, proxy: Proxy, key: str) -> Environment:
    """Point Codex at the proxy."""
    folder = home / "codex"
    folder.mkdir()
    (folder / "config.toml").write_text(CODEX_CONFIG.format(url=proxy.url))
    return {"CODEX_HOME": str(folder), "LOOPBACK_KEY": key}


CLAUDE_CODE: Final = Agent(
    "claude",
    begin=("-p",),
    resume=("-p", "--continue"),
    prepare=prepare_claude,
    tool=lambda file: ToolCall("Read", json.dumps({"file_path": str(file)})),
)
CODEX: Final = Agent(
    "codex",
    begin=("exec", "--skip-git-repo-check"),
    resume=("exec", "resume", "--last", "--skip-git-repo-check"),
    prepare=prepare_codex,
    tool=lambda file: ToolCall("exec_command", json.dumps({"cmd": f"cat {file}"})),
)


class Terminal:
    """An installed agent in a folder with one file, with a home of its own."""

    def __init__(self, agent: Agent, proxy: Proxy, key: str, *, root: Path) -> None:
        self._agent = agent
        self._work = root / "work"
        self._work.mkdir()
        self.file = self._work / "a.py"
        self.file.write_text(FILE_TEXT)
        home = root / "home"
        home.mkdir()
        own = agent.prepare(home, proxy, key)
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(home), **CUT_OFF, **own}

    def begin(self, text: str) -> str:
        """Say a sentence in a new conversation and return what the agent prints."""
        return self._run(*self._agent.begin, text)

    def resume(self, text: str) -> str:
        """Say a sentence in the newest conversation."""
        return self._run(*self._agent.resume, text)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._agent.binary, *arguments],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(params=[CLAUDE_CODE, CODEX], ids=lambda agent: agent.binary)
def agent(request: pytest.FixtureRequest) -> Agent:
    """Hand out each agent that is installed."""
    wanted: Agent = request.param
    if shutil.which(wanted.binary) is None:
        pytest.skip(f"`{wanted.binary}` is not on PATH")
    return wanted


@pytest.fixture
def terminal(agent: Agent, proxy: Proxy, user_key: str, tmp_path: Path) -> Terminal:
    """Hand out an agent that nobody has used before."""
    return Terminal(agent, proxy, user_key, root=tmp_path)


def test_a_tool_loop_teaches_one_sentence(
    agent: Agent, terminal: Terminal, proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """The agent reads the file and prints the answer; of all it sent, one sentence is learned."""
    upstream.set_answer(ANSWER, tool=agent.tool(terminal.file))
    assert ANSWER in terminal.begin(STATEMENT)
    first, *later = upstream.records()
    assert FILE_TEXT.strip() not in first.raw.decode()
    assert FILE_TEXT.strip() in later[-1].raw.decode()
    wait_learned(proxy, user_key, 1)
    wait_idle(proxy)
    (memory,) = memories(proxy, user_key)
    assert (memory["key"], memory["content"]) == (LEARNED_KEY, LEARNED_CONTENT)
    assert memory["source"] == "user_message"


def test_the_next_conversation_knows_it(
    terminal: Terminal, proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """A new conversation of the same person carries one block with the sentence."""
    upstream.set_answer(ANSWER)
    terminal.begin(STATEMENT)
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    assert ANSWER in terminal.begin(FOLLOW_UP)
    (record,) = upstream.records()
    assert blocks_in(record.body) == 1
    assert f"- {LEARNED_CONTENT}" in record.raw.decode()
    assert STATEMENT not in record.raw.decode()


def test_a_resumed_conversation_teaches_nothing_again(
    terminal: Terminal, proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """The history comes again in the second run: the memory stays one, and a block goes along."""
    upstream.set_answer(ANSWER)
    terminal.begin(STATEMENT)
    (learned,) = wait_learned(proxy, user_key, 1)
    upstream.clear()
    assert ANSWER in terminal.resume(FOLLOW_UP)
    (record,) = upstream.records()
    assert STATEMENT in record.raw.decode()
    assert HEADING in record.raw.decode()
    wait_idle(proxy)
    (memory,) = memories(proxy, user_key)
    assert (memory["id"], memory["createdAt"]) == (learned["id"], learned["createdAt"])
