"""The block that a model reads, and the form in which a deployment takes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.injection import FRAMING, HEADING, render_block, render_line
from omniroute_litellm.placement import BlockForm, Deployment, block_form


class TestBlock:
    """Rendering."""

    def test_shape(self) -> None:
        """A block is its heading, its framing and one line a memory."""
        block = render_block([render_line("I like tea"), render_line("I like jazz")])
        assert block == f"{HEADING}\n{FRAMING}\n- I like tea\n- I like jazz"

    def test_heading_is_known(self) -> None:
        """The first line is the one that OmniRoute's users know."""
        assert render_block(["- a"]).startswith("Memory context:\n")

    @pytest.mark.parametrize("lines", [[], ["- "], ["-"], ["- ", "-  "]])
    def test_blank_is_nothing(self, lines: list[str]) -> None:
        """Without a visible word there is no block at all."""
        assert render_block(lines) == ""

    @given(st.text())
    def test_memory_stays_in_its_line(self, content: str) -> None:
        """No content starts a line of its own, so none ends the block or forges its heading."""
        block = render_block([render_line(content)])
        assert len(block.splitlines()) in {0, 3}

    @given(st.lists(st.text(), max_size=5))
    def test_heading_comes_once_as_a_line(self, contents: list[str]) -> None:
        """Only the first line is the heading."""
        lines = render_block([render_line(content) for content in contents]).splitlines()
        assert HEADING not in lines[1:]


class TestForm:
    """Choosing the form."""

    @pytest.mark.parametrize(
        ("provider", "model"),
        [
            ("openai", "gpt-4o"),
            ("openai", "o3-mini"),
            ("anthropic", "claude-sonnet-4-5"),
            ("", ""),
            ("openai", "solo1"),
            ("openai", "o10"),
            ("x", "chatglm"),
        ],
    )
    def test_system(self, provider: str, model: str) -> None:
        """What nothing is known of takes a system message."""
        assert block_form(Deployment(provider, model)) is BlockForm.SYSTEM

    @pytest.mark.parametrize(
        ("provider", "model"),
        [
            ("openai", "o1"),
            ("OpenAI", "O1-Mini"),
            ("azure", "o1-preview-2024-09-12"),
            ("openrouter", "openai/o1-mini"),
            ("openrouter", "z-ai/glm-4.6"),
            ("zai", "glm-4.6"),
            ("glm-cn", "x"),
            ("qianfan", "ernie"),
        ],
    )
    def test_user(self, provider: str, model: str) -> None:
        """What rejects the system role takes a user message."""
        assert block_form(Deployment(provider, model)) is BlockForm.USER

    @pytest.mark.parametrize("model", ["z-ai/glm-4.5-air:free", "openai/o1-mini:nitro"])
    def test_variant_tag_hides_no_model(self, model: str) -> None:
        """A variant behind a colon is the model before it."""
        assert block_form(Deployment("openrouter", model)) is BlockForm.USER

    def test_base_model_counts(self) -> None:
        """A deployment's own name does not hide the model behind it."""
        assert block_form(Deployment("azure", "prod", base_model="o1")) is BlockForm.USER

    def test_known_refusal_counts(self) -> None:
        """What LiteLLM knows about the role counts."""
        assert block_form(Deployment("x", "y", takes_system=False)) is BlockForm.USER

    def test_list_beats_knowledge(self) -> None:
        """A listed model stays listed although LiteLLM says it takes the role."""
        assert block_form(Deployment("openai", "o1", takes_system=True)) is BlockForm.USER

    @pytest.mark.parametrize("name", ["vllm", "VLLM", "org/small", "small"])
    def test_setting_adds_refusals(self, name: str) -> None:
        """The setting names providers, models, or models without their folder."""
        assert block_form(Deployment("vllm", "org/small"), no_system=[name]) is BlockForm.USER

    @pytest.mark.parametrize("name", ["vllm", "org/small", "Small"])
    def test_setting_adds_strict_models(self, name: str) -> None:
        """A strict model gets the block merged into its one system message."""
        found = block_form(Deployment("vllm", "org/small"), strict_system=[name])
        assert found is BlockForm.MERGED

    def test_refusal_beats_strictness(self) -> None:
        """A model on both lists takes no system message at all."""
        found = block_form(Deployment("x", "y"), no_system=["y"], strict_system=["y"])
        assert found is BlockForm.USER

    def test_name_is_no_prefix(self) -> None:
        """A name in a setting is that name, not the beginning of others."""
        assert block_form(Deployment("x", "small-2"), no_system=["small"]) is BlockForm.SYSTEM
