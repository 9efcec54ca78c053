"""Where this installation keeps its data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import platformdirs

VARIABLE: Final = "OMNIROUTE_DATA_DIR"
DATABASE_NAME: Final = "omniroute.db"


def data_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that the environment names, else the platform's user data directory."""
    named = environ.get(VARIABLE, "").strip()
    if named:
        return Path(named).expanduser()
    return Path(platformdirs.user_data_dir("omniroute_litellm", appauthor=False))
