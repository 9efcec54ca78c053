"""The memory settings: read, explain, change."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from pydantic import JsonValue

from omniroute_litellm.api.auth import Admin
from omniroute_litellm.api.engine import runtime_of
from omniroute_litellm.api.errors import responses
from omniroute_litellm.api.schemas import SettingState
from omniroute_litellm.settings import FIELDS, Origin, ResolvedSettings, Settings, public_name

router = APIRouter(tags=["settings"])


@router.get("/settings/memory", responses=responses(401, 403, 422, 503))
def get_settings(
    request: Request,
    caller: Admin,
    explain: Annotated[bool, Query(description="Each field with its source")] = False,
) -> Settings | dict[str, SettingState]:
    """Return every setting; with ``explain`` also where each value came from."""
    current = runtime_of(request).settings.refresh()
    return _explained(current) if explain else current.values


@router.put("/settings/memory", responses=responses(400, 401, 403, 413, 422, 503))
def put_settings(
    request: Request, caller: Admin, change: Annotated[dict[str, JsonValue], Body()]
) -> Settings:
    """Change some settings and return all; nothing changes when one of them is refused."""
    return runtime_of(request).settings.change(change).values


def _explained(current: ResolvedSettings) -> dict[str, SettingState]:
    values = current.values.model_dump(mode="json")
    return {
        public_name(field): SettingState(
            value=values[field],
            source=current.origins[field].value,
            pinned=current.origins[field] is Origin.ENVIRONMENT,
        )
        for field in FIELDS
    }
