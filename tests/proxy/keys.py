"""LiteLLM custom authentication which stands in for a database of virtual keys.

LiteLLM loads this file from beside its configuration, as `custom_auth: keys.user_api_key_auth`.

| token | identity |
|---|---|
| the master key | proxy admin, as LiteLLM itself would describe it |
| `sk-user-ann` | virtual key of user `ann` |
| `sk-user-ann-key-2` | another key of the same user |
| `sk-user-ann-team-red-key-2` | ... in team `red` |
| `sk-anon` | an authenticated caller without key and user |
| anything else | 401 |
"""

import re
from typing import Final

from fastapi import HTTPException, Request
from litellm.constants import LITELLM_PROXY_MASTER_KEY_ALIAS
from litellm.proxy import proxy_server
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

ANONYMOUS: Final = "sk-anon"
VIRTUAL_KEY: Final = re.compile(
    r"sk-user-(?P<user>[a-z0-9]+)(?:-team-(?P<team>[a-z0-9]+))?(?:-key-[a-z0-9]+)?"
)


async def user_api_key_auth(request: Request, api_key: str) -> UserAPIKeyAuth:
    """Tell who the caller is by the form of the token; LiteLLM hashes `sk-` keys itself."""
    if api_key == proxy_server.master_key:
        return UserAPIKeyAuth(
            api_key=LITELLM_PROXY_MASTER_KEY_ALIAS,
            user_id=proxy_server.litellm_proxy_admin_name,
            user_role=LitellmUserRoles.PROXY_ADMIN,
        )
    if api_key == ANONYMOUS:
        return UserAPIKeyAuth()
    if match := VIRTUAL_KEY.fullmatch(api_key):
        return UserAPIKeyAuth(
            api_key=api_key,
            user_id=match["user"],
            team_id=match["team"],
            user_role=LitellmUserRoles.INTERNAL_USER,
        )
    raise HTTPException(status_code=401, detail="expected a test key")
