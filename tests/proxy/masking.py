"""A LiteLLM guardrail that masks a word, as those for personal data do.

LiteLLM loads this file from beside its configuration, as `masking.Masking`.
"""

import json
from typing import Any, Final

from litellm.integrations.custom_guardrail import CustomGuardrail

SECRET: Final = "jasmine"
MASK: Final = "[MASKED]"


class Masking(CustomGuardrail):
    """Takes one word out of every message before the call."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Mask the word wherever the prompt holds it."""
        for name in ("messages", "input", "contents"):
            if name in data:
                data[name] = json.loads(json.dumps(data[name]).replace(SECRET, MASK))
        return data
