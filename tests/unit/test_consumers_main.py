"""The example consumer's command line: what is wrong is said before anything is connected."""

import pytest

from consumers.__main__ import main

WRONG = {
    "no broker": ([], "no broker given: use --bootstrap HOST:PORT"),
    "bad lane": (["--bootstrap", "127.0.0.1:1", "--lane", "Big Lane"], "lane 'Big Lane' must match"),
    "bad setting": (["--bootstrap", "127.0.0.1:1", "--set", "security.protocol"], "expected NAME=VALUE"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_explained(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and a sentence that says what is expected."""
    monkeypatch.delenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", raising=False)
    arguments, says = WRONG[name]
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err
