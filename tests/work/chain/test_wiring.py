"""The settings make a chain, say early what is missing, and give no secret away."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, InputError
from anabranch.settings import Settings, from_environment
from anabranch.work.chain.errors import SignerUnavailable
from anabranch.work.chain.executor import DryRun, SigningExecutor
from anabranch.work.chain.signer import LocalSigner
from anabranch.work.chain.wiring import ChainPorts, chain_from, endpoints_in
from anabranch.work.rule.ports import CallOutcome, ContractCall
from anabranch.work.secrets.redaction import Redactor
from hangs import HANG_SECONDS

from ..support import run
from .contracts import vault
from .node import KEY, SENDER, Evm

URL = "http://user:hunter2secret@127.0.0.1:9/v3/0123456789abcdef"
CALL = ContractCall(
    to="0x" + 40 * "1", function="set(uint256)", args=(2,), value=0, gas_limit=None, key="s:1"
)


def chain(env: dict[str, str] | None = None, **given: str) -> ChainPorts:
    found = chain_from(Settings(chain_url=URL, **given), environment=env or {})  # type: ignore[arg-type]
    assert found is not None
    return found


def test_without_a_node_there_is_no_chain() -> None:
    assert chain_from(Settings()) is None


def test_execution_is_off_unless_it_is_configured() -> None:
    off = chain()
    assert isinstance(off.executor, DryRun)
    assert run(off.executor.execute(CALL)) == CallOutcome(ok=True, dry_run=True)  # nobody is asked


def test_simulating_and_sending_are_chosen_by_a_setting() -> None:
    keys = {"THE_KEY": KEY}
    assert isinstance(chain(chain_execution="simulate").executor, DryRun)
    sending = chain(keys, chain_execution="send", chain_signer_key_env="THE_KEY", store=":memory:")
    assert isinstance(sending.executor, SigningExecutor)


def test_what_a_call_may_cost_is_chosen_by_settings() -> None:
    settings = Settings(
        store=":memory:",
        chain_url=URL,
        chain_execution="send",
        chain_signer_key_env="THE_KEY",
        chain_gas_max=5,
        chain_fee_max=7,
        chain_value_wei=9,
    )
    found = chain_from(settings, environment={"THE_KEY": KEY})
    assert found is not None
    assert isinstance(found.executor, SigningExecutor)
    options = found.executor.options
    assert (options.gas_max, options.fee_max, options.value_wei) == (5, 7, 9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"chain_execution": "send"}, "but there is no key"),
        ({"chain_execution": "send", "chain_signer_key_env": "ABSENT"}, "no variable ABSENT"),
        ({"chain_execution": "send", "chain_signer_key_env": KEY[2:]}, "the name of a variable"),
        ({"chain_execution": "send", "chain_signer_key_env": KEY}, "the name of a variable"),
        ({"chain_execution": "send", "chain_signer_key_env": "SHORT"}, "64 hexadecimal digits"),
        ({"chain_execution": "send", "chain_signer_key_env": "ZERO"}, "not one of this curve"),
        ({"chain_execution": "send", "chain_signer_key_env": "A", "chain_signer_key_file": "b"},
         "give one of them"),
        ({"chain_execution": "send", "chain_signer_key_file": "/nowhere/key"}, "cannot be read"),
        ({"chain_endpoints": "a=http://x a=http://y"}, "'a' is there twice"),
        ({"chain_endpoints": "http://user:hunter2secret@x"}, "entry 1 is not name=url"),
        ({"chain_endpoints": "a=ftp://user:hunter2secret@x"}, "http:// or https://"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_at_once_and_without_secrets(
    given: dict[str, str], words: str
) -> None:
    with pytest.raises(AnabranchError, match=words) as caught:
        chain({"SHORT": "0xabc123secret", "ZERO": 64 * "0"}, **given)
    for secret in ("hunter2secret", KEY[2:], "abc123secret"):
        assert secret not in str(caught.value)


def test_execution_without_a_node_is_refused() -> None:
    with pytest.raises(InputError, match="no node is given"):
        chain_from(Settings(chain_execution="send"))


def test_the_environment_is_read_and_checked() -> None:
    found = from_environment(
        {
            "ANABRANCH_CHAIN_URL": URL,
            "ANABRANCH_CHAIN_EXECUTION": "SEND",
            "ANABRANCH_CHAIN_RULE_URLS": "allow",
        }
    )
    assert (found.chain_url, found.chain_execution, found.chain_rule_urls) == (URL, "send", "allow")
    assert "hunter2secret" not in repr(found)
    with pytest.raises(InputError, match="CHAIN_EXECUTION must be record, simulate or send"):
        from_environment({"ANABRANCH_CHAIN_EXECUTION": "yes"})
    with pytest.raises(InputError, match="CHAIN_TIMEOUT_SECONDS must be above zero"):
        from_environment({"ANABRANCH_CHAIN_TIMEOUT_SECONDS": "0"})


def test_several_endpoints_are_parted_by_blanks() -> None:
    text = "base=https://base.example/?k=1\n eth=https://eth.example"
    assert endpoints_in(text) == {
        "base": "https://base.example/?k=1",
        "eth": "https://eth.example",
    }


def test_the_redactor_learns_key_and_credentials() -> None:
    redactor = Redactor()
    settings = Settings(chain_url=URL, chain_execution="send", chain_signer_key_env="THE_KEY")
    chain_from(settings, redactor=redactor, environment={"THE_KEY": KEY})
    for secret in (KEY, KEY[2:], "hunter2secret", "0123456789abcdef"):
        assert secret not in redactor.text(f"it was {secret}, really")


# -- the signer --------------------------------------------------------------------------------


def test_a_signer_shows_its_address_and_never_its_key() -> None:
    signer = LocalSigner(KEY)
    assert signer.address == SENDER
    assert KEY[2:] not in f"{signer!r} {signer}"
    assert LocalSigner(KEY[2:]).address == SENDER


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eth_account", None)
    with pytest.raises(SignerUnavailable, match=r"pip install 'anabranch\[evm\]'"):
        LocalSigner(KEY)
    with pytest.raises(SignerUnavailable, match=r"pip install 'anabranch\[evm\]'"):
        chain({"THE_KEY": KEY}, chain_execution="send", chain_signer_key_env="THE_KEY")


def test_a_signer_leaves_the_recursion_limit_as_it_was() -> None:
    """Nested input would overflow the stack of a server that has a key, and end it."""
    code = (
        "import sys\n"
        "from anabranch.work.chain.signer import LocalSigner\n"
        "before = sys.getrecursionlimit()\n"
        f"LocalSigner({KEY!r})\n"
        "print(before == sys.getrecursionlimit())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    assert done.stdout.strip() == "True"


def test_reading_needs_none_of_the_packages_of_the_extra() -> None:
    code = (
        "import sys\n"
        "for name in ('eth_account', 'eth_abi', 'eth_utils', 'Crypto'): sys.modules[name] = None\n"
        "import anabranch.work.chain.wiring, anabranch.work.chain.loader\n"
        "from anabranch.work.chain.contracts import call_data\n"
        "print(call_data('getRule()').hex())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    assert done.stdout == "b78ba7c8\n"


# -- all together ------------------------------------------------------------------------------


def test_a_chain_from_the_settings_sends_and_remembers_beside_the_store(tmp_path: Path) -> None:
    evm = Evm()
    to = evm.deploy(vault())
    key = tmp_path / "key"
    key.write_text(KEY + "\n")

    async def whole() -> tuple[CallOutcome, CallOutcome]:
        async with evm.served() as url:
            settings = Settings(
                store=str(tmp_path / "runs.db"),
                chain_url=url,
                chain_execution="send",
                chain_signer_key_file=str(key),
            )
            outcomes = []
            for _ in range(2):  # an engine, and the one after it
                found = chain_from(settings)
                assert found is not None
                one = ContractCall(to, "set(uint256)", (6,), 0, None, "s:1")
                outcomes.append(await found.executor.execute(one))
                await found.close()
            return outcomes[0], outcomes[1]

    first, second = asyncio.run(whole())
    assert first.ok
    assert first == second
    assert (tmp_path / "runs.db.sent").exists()
    assert evm.methods().count("eth_sendRawTransaction") == 1
