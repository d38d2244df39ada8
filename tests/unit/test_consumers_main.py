"""The example consumer's command line: what is wrong is said before anything is connected."""

import msgspec
import pytest

from consumers.__main__ import _line, main
from consumers.worker import Handled
from topics.codec import decode
from topics.messages import Dispatch

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


def handled(**fields: object) -> Handled:
    """One occurrence at noon, enqueued 250 ms after it."""
    value = {
        "occurrence_id": "acme/a:1:20260101T120000.000Z",
        "schedule_id": "acme/a",
        "tenant": "acme",
        "version": 1,
        "shard": 0,
        "lane": "default",
        "priority": "normal",
        "attempt": 1,
        "scheduled_for": "2026-01-01T12:00:00Z",
        "available_at": "2026-01-01T12:00:00Z",
        "origin": "schedule",
        "stands_for": 1,
        "tz_version": "2026f",
        "generation": 0,
        **fields,
    }
    dispatch = decode(Dispatch, msgspec.json.encode(value))
    return Handled(dispatch, repeat=False, topic="t", partition=0, offset=7, enqueued_ms=1_767_268_800_250)


def test_an_occurrence_without_a_payload_is_a_line_without_one() -> None:
    """A payload is optional; null is a payload."""
    line = json_of(handled())
    assert (line["lag_ms"], "payload" in line) == (250, False)
    assert json_of(handled(payload=None))["payload"] is None


@pytest.mark.parametrize("instant", ["never", "2026-01-01T12:00:00", ""])
def test_an_instant_that_is_none_stops_nothing(instant: str) -> None:
    """Only the shards should write here, but a stranger's record must not end the consumer."""
    assert json_of(handled(scheduled_for=instant))["lag_ms"] is None


def test_a_payload_over_several_lines_is_printed_on_one() -> None:
    """One line for each occurrence; the payload's numbers stay as they were written."""
    raw = msgspec.Raw(b'{\n\t"n": 1.10,\n\t"big": 123456789012345678901234567890\n}')
    line = _line(handled(payload=raw))
    assert b"\n" not in line
    assert b'"payload":{"n":1.10,"big":123456789012345678901234567890}' in line


def json_of(one: Handled) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(_line(one))
    return found
