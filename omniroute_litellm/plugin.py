"""The name that a LiteLLM config lists: ``omniroute_litellm.plugin.handler``.

LiteLLM may load this very file a second time, beside its own import, so it holds nothing.
"""

from omniroute_litellm.hooks import handler

__all__ = ["handler"]
