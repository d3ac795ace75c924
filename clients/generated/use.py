"""Uses a generated client as an application does: it has to type-check and to run."""

import importlib
import pkgutil

import generated
from generated import Client
from generated.api.decisions import take
from generated.models import Decision, TakeType0


def may_have_a_code(client: Client, phone: str) -> bool:
    decision = take.sync(client=client, body=TakeType0(policy="sms-send", identifier=phone))
    return isinstance(decision, Decision) and decision.allowed


if __name__ == "__main__":
    for module in pkgutil.walk_packages(generated.__path__, "generated."):
        importlib.import_module(module.name)
    body = TakeType0(policy="sms-send", identifier="+4915112345678").to_dict()
    assert body == {"policy": "sms-send", "identifier": "+4915112345678"}, body
