"""What blocks of Python find around them on a page."""

import os
from typing import Any

from fastapi import FastAPI

from ratelimitd import AsyncClient, Client, Demand

caller = os.environ.get("PAGE_CALLER", "")  # a number that no other block has
phone = "+4915112345" + caller.zfill(3)
address = "203.0.113." + caller
mail = f"anna{caller}@example.com"
account = "anna" + caller

url = os.environ.get("RATELIMITD_SERVER", "")
limits = Client(url)
async_limits = AsyncClient(url)
app: Any = FastAPI()


def do(what: str) -> bool:
    print(what, flush=True)
    return True


def send_code(phone: str) -> bool:
    return not do("send the code")  # the gateway refuses it


def create_account(mail: str) -> None:
    do("create the account")


def password_is_right(account: str) -> bool:
    return do("check the password")


def code_is_right(phone: str) -> bool:
    return do("check the code")


def tell_to_wait(seconds: float | None) -> None:
    do("tell to wait")


def deny() -> None:
    do("deny")


def alarm(error: Exception) -> None:
    do("raise an alarm")
