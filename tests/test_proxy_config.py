"""What a LiteLLM configuration says that the demo has to know."""

from pathlib import Path

import pytest

from omniroute_litellm.cli import main
from omniroute_litellm.proxy_config import ProxyConfig, ProxyConfigError, read_proxy_config

MODELS = "model_list:\n  - model_name: house\n    litellm_params: {model: openai/x}\n"
KEYED = "general_settings:\n  master_key: sk-of-the-house\n"


def read(tmp_path: Path, text: str, **environ: str) -> ProxyConfig:
    """Read a configuration with this text."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return read_proxy_config(path, environ=environ)


def test_key_and_model_are_those_of_the_file(tmp_path: Path) -> None:
    """Both are what the file names; the environment's key is not used where the file has one."""
    config = read(tmp_path, MODELS + KEYED, LITELLM_MASTER_KEY="sk-other")
    assert (config.key, config.model, config.variable) == ("sk-of-the-house", "house", None)


def test_a_key_in_a_variable_is_read_there(tmp_path: Path) -> None:
    """``os.environ/NAME`` is the value of that variable, whatever its name."""
    text = MODELS + "general_settings:\n  master_key: os.environ/HOUSE_KEY\n"
    assert read(tmp_path, text, HOUSE_KEY="sk-x").key == "sk-x"
    config = read(tmp_path, text)
    assert (config.key, config.variable) == (None, "HOUSE_KEY")
    with_section = f"{text}environment_variables:\n  HOUSE_KEY: sk-section\n"
    assert read(tmp_path, with_section, HOUSE_KEY="sk-x").key == "sk-section"


def test_without_a_key_in_the_file_litellm_takes_its_own_variable(tmp_path: Path) -> None:
    """That is what LiteLLM does; with neither there is an error of one line."""
    assert read(tmp_path, MODELS, LITELLM_MASTER_KEY="sk-own").key == "sk-own"
    for text in (MODELS, MODELS + "general_settings:\n  master_key:\n", "- a list\n"):
        with pytest.raises(ProxyConfigError, match=r"config\.yaml names no master key"):
            read(tmp_path, text)


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        ("[{model_name: a, litellm_params: {model: openai/a}}]", "a"),
        (
            "[{model_name: a, litellm_params: {model: x/a}}, {model_name: b, litellm_params: "
            "{model: demo/echo}}]",
            "b",
        ),
        ("[{model_name: 'any/*', litellm_params: {model: 'openai/*'}}, {model_name: b}]", "b"),
        ("[{model_name: a, model_info: {mode: embedding}}, {model_name: b}]", "b"),
        ("[{model_name: a, model_info: {mode: chat}}, {model_name: b}]", "a"),
        ("[1, {model_name: 2}]", None),
        ("text", None),
    ],
)
def test_the_first_chat_model_is_asked(tmp_path: Path, models: str, chosen: str | None) -> None:
    """The demo's own model goes first, since it costs nothing; patterns name no model."""
    assert read(tmp_path, f"model_list: {models}\n{KEYED}").model == chosen


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and broken YAML are one line each."""
    with pytest.raises(ProxyConfigError, match="no LiteLLM configuration at"):
        read_proxy_config(tmp_path / "none.yaml", environ={})
    with pytest.raises(ProxyConfigError, match=r"config\.yaml: ") as raised:
        read(tmp_path, "a: [1\nb: 2")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [(MODELS, "names no master key"), (KEYED, "names no chat model")],
    ids=["no key", "no model"],
)
def test_the_demo_says_in_one_line_what_the_file_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    told: str,
) -> None:
    """Before anything is started."""
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)
    config = tmp_path / "config.yaml"
    config.write_text(text)
    assert main(["demo", "--config", str(config)]) == 1
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
