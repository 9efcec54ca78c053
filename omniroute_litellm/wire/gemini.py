"""Gemini generateContent: ``systemInstruction`` beside ``contents``, both made of parts."""

from collections.abc import Mapping, Sequence
from typing import Final

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.base import Body
from omniroute_litellm.wire.parts import (
    as_list,
    as_mapping,
    has_text,
    holds,
    newest_prose,
    with_block_behind,
)

_INSTRUCTION_NAMES: Final = ("systemInstruction", "system_instruction")


class GeminiFormat:
    """The format of ``generateContent`` and ``streamGenerateContent``."""

    def items(self, body: Body) -> Sequence[object]:
        """Return the contents."""
        return _listed(body.get("contents"))

    def preamble(self, body: Body) -> object:
        """Return the instruction and the tools."""
        return [*(body.get(name) for name in _INSTRUCTION_NAMES), body.get("tools")]

    def prose(self, item: object) -> str | None:
        """Return the prose of a user content; one without a role is the user's, too."""
        return newest_prose(_parts(item)) if _is_user(item) else None

    def has_user_text(self, item: object) -> bool:
        """Tell whether an item is a user content with text; one without a role is the user's."""
        return _is_user(item) and has_text(_parts(item))

    def is_continued(self, body: Body) -> bool:
        """Return False: every request holds its whole conversation."""
        return False

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the instruction or the contents already."""
        entries = [*(body.get(name) for name in _INSTRUCTION_NAMES), *self.items(body)]
        return any(holds(_listed(as_mapping(entry).get("parts")), block) for entry in entries)

    def place_leading(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return the instruction with the block as its first part, or a user content in front."""
        part = {"text": block}
        if form is BlockForm.USER:
            return {"contents": [{"role": "user", "parts": [part]}, *self.items(body)]}
        name = next((name for name in _INSTRUCTION_NAMES if body.get(name)), _INSTRUCTION_NAMES[0])
        given = body.get(name)
        if isinstance(given, str):
            return {name: {"parts": [part, {"text": given}]}}
        instruction = as_mapping(given)
        return {name: {**instruction, "parts": [part, *_listed(instruction.get("parts"))]}}

    def place_behind(self, body: Body, blocks: Mapping[int, str]) -> dict[str, object]:
        """Return new contents with each block behind the human part of its content."""
        contents = list(self.items(body))
        for at, block in blocks.items():
            content = as_mapping(contents[at])
            given = _listed(content.get("parts"))
            parts = with_block_behind(given, block, part={"text": block})
            contents[at] = {**content, "parts": parts}
        return {"contents": contents}


def _is_user(item: object) -> bool:
    return as_mapping(item).get("role", "user") == "user"


def _parts(item: object) -> Sequence[object]:
    return _listed(as_mapping(item).get("parts"))


def _listed(value: object) -> Sequence[object]:
    """Return a list as it is and one object as a list of it: the format takes both."""
    single = as_mapping(value)
    return [single] if single else as_list(value)
