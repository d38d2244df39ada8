"""The store's keys: see the table in `state/store.py`."""

from __future__ import annotations

from scheduler.core.due import instant_end

SCHEDULE = b"s"
LIVE = b"l"
RECORD = b"h"
ZONES = b"z"
QUEUE = b"q"
DUE = b"d"
PLACE = b"k"
TIMER = b"t"
CATCH_UP = b"c"
BACKFILL = b"b"
CHANGE = b"e"
EXPIRY = b"x"
META = b"m"

PREFIXES_FROM_TOPICS = (SCHEDULE, LIVE, RECORD, ZONES, QUEUE)
PREFIXES_DERIVED = (DUE, PLACE, TIMER, CATCH_UP, BACKFILL, CHANGE, EXPIRY)

_SEPARATOR = b"\x00"
_FLOOR = b"\x00floor:"


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def schedule(schedule_id: str) -> bytes:
    return SCHEDULE + schedule_id.encode()


def place(schedule_id: str) -> bytes:
    return PLACE + schedule_id.encode()


def is_floor(live_key: bytes) -> bool:
    """Whether a store key of a live record is a floor's."""
    return live_key.endswith(_FLOOR)


def live(topic_key: bytes) -> bytes:
    """`<kind>:<owner>:<id>` by owner first, so that one look finds all that a schedule owes."""
    kind, owner, name = topic_key.split(b":", 2)
    return LIVE + owner + _SEPARATOR + kind + b":" + name


def live_topic_key(key: bytes) -> bytes:
    """Back from the store's key to the topic's."""
    owner, _, rest = key[1:].partition(_SEPARATOR)
    kind, _, name = rest.partition(b":")
    return kind + b":" + owner + b":" + name


def owner_of(key: bytes) -> str:
    """Whose live record stands under a store key."""
    return key[1 : key.index(_SEPARATOR)].decode()


def live_of(owner: str) -> tuple[bytes, bytes]:
    """The range of all live records of one owner."""
    start = LIVE + owner.encode() + _SEPARATOR
    return start, after_prefix(start)


def timer(instant: int, topic_key: bytes) -> bytes:
    return TIMER + instant.to_bytes(8) + topic_key


def split_timer(key: bytes) -> tuple[int, bytes]:
    """(instant, key on the live topic)."""
    return int.from_bytes(key[1:9]), key[9:]


def timers_until(instant: int) -> tuple[bytes, bytes]:
    return TIMER, TIMER + instant_end(instant)


def catch_up(priority: int, owner: str, version: int) -> bytes:
    # The version as a number, not as text: what an older one owes goes before a newer one's, also from 9 to 10.
    return CATCH_UP + bytes([priority]) + owner.encode() + _SEPARATOR + version.to_bytes(8)


def catch_ups(priority: int) -> bytes:
    """The beginning of all catch-up keys of a priority."""
    return CATCH_UP + bytes([priority])


def split_catch_up(key: bytes) -> tuple[str, int]:
    """(owner, version)."""
    owner, _, version = key[2:].partition(_SEPARATOR)
    return owner.decode(), int.from_bytes(version)


def backfill(priority: int, owner: str, name: str) -> bytes:
    return BACKFILL + bytes([priority]) + owner.encode() + _SEPARATOR + name.encode()


def split_backfill(key: bytes) -> tuple[str, str]:
    """(owner, name)."""
    owner, _, name = key[2:].decode().partition("\0")
    return owner, name


def change(instant: int, topic_key: bytes) -> bytes:
    return CHANGE + instant.to_bytes(8) + topic_key


def split_change(key: bytes) -> tuple[int, bytes]:
    """(instant, key on the live topic)."""
    return int.from_bytes(key[1:9]), key[9:]


def changes_until(instant: int) -> tuple[bytes, bytes]:
    return CHANGE, CHANGE + instant_end(instant)


def expiry(instant: int, schedule_id: str) -> bytes:
    return EXPIRY + instant.to_bytes(8) + schedule_id.encode()


def split_expiry(key: bytes) -> tuple[int, str]:
    return int.from_bytes(key[1:9]), key[9:].decode()


def meta(name: str) -> bytes:
    return META + name.encode()
