"""Request formats: find the human text, place a block, read the answer."""
