"""Stores that a standby keeps: handed to an owner of the node at once, and given up alone when something is wrong."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from scheduler.config import Settings
from scheduler.core.calendars import NO_CALENDARS
from scheduler.errors import StateCorrupted
from scheduler.runtime.outside import Outside
from scheduler.runtime.restore import Outlived, Restore
from scheduler.runtime.standby import HEARD_MS, Standbys
from scheduler.runtime.stores import STORE_LIFE_MS, Mark, note_whole, open_standby, open_store, whole_at
from scheduler.runtime.surroundings import Surroundings
from scheduler.runtime.telemetry import Telemetry
from scheduler.shard import keys
from scheduler.shard.rebuild import Identity, mark_applied
from scheduler.state.rocks import StoreHeld
from scheduler.state.store import Batch, MemoryStore
from topics import catalog

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000_000
IDENTITY = Identity("c", "", 2, 0)

# A standby in a process of its own: it has the store until it sees the mark.
STANDBY = """
import sys, time
from pathlib import Path
from scheduler.runtime.stores import Mark, open_standby
from scheduler.shard.rebuild import Identity
path = Path(sys.argv[1])
store, mark = open_standby(path, Identity("c", "", 2, 0), int(sys.argv[2])), Mark(path)
print("open", flush=True)
while not mark.is_held():
    time.sleep(0.01)
store.close()
"""


def test_a_standby_in_another_process_lets_go_for_the_owner(tmp_path: Path) -> None:
    """The owner opens the very directory the standby had, not a copy beside it."""
    path = tmp_path / "0"
    command = [sys.executable, "-c", STANDBY, str(path), str(NOW)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as standby:
        assert standby.stdout is not None
        assert standby.stdout.readline() == "open\n"
        with pytest.raises(StoreHeld):
            open_standby(path, IDENTITY, NOW)
        with Mark(path):
            assert standby.wait(30) == 0
            open_store(path, IDENTITY, NOW, lambda: False).close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "0.owner"]


def test_a_mark_ends_with_its_last_holder(tmp_path: Path) -> None:
    """A former owner that hangs keeps it; a process that dies cannot."""
    mark = Mark(tmp_path / "0")
    assert not mark.is_held()
    with Mark(tmp_path / "0"):
        with Mark(tmp_path / "0"):
            assert mark.is_held()
        assert mark.is_held()
    assert not mark.is_held()


def test_a_mark_on_a_disk_that_refuses_is_done_without(tmp_path: Path) -> None:
    """A shard must not fail for a courtesy."""
    (tmp_path / "in-the-way").write_text("")
    with Mark(tmp_path / "in-the-way" / "0") as mark:
        assert not mark.is_held()


def test_a_store_is_as_old_as_it_was_last_known_whole(tmp_path: Path) -> None:
    """Following topics on which nothing happens keeps it young; half a day without that, and it is emptied."""
    path = tmp_path / "0"
    store = open_standby(path, IDENTITY, NOW)
    assert whole_at(store) is None
    note_whole(store, NOW)
    batch = Batch()
    batch.put(keys.schedule("acme/a"), b"{}")
    store.write(batch)
    store.close()
    store = open_standby(path, IDENTITY, NOW + STORE_LIFE_MS)
    assert store.get(keys.schedule("acme/a")) == b"{}"
    store.close()
    store = open_standby(path, IDENTITY, NOW + STORE_LIFE_MS + 1)
    assert store.get(keys.schedule("acme/a")) is None
    store.close()


class Brokers:
    """A consumer of topics in which nothing is to be read: they begin and end here."""

    def __init__(self, low: int = 0, high: int = 0) -> None:
        self.bounds = (low, high)

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return self.bounds

    def consume(self, *_: object) -> list[object]:
        return []

    def assign(self, *_: object) -> None: ...

    incremental_assign = incremental_unassign = assign

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("bounds", "fault", "said"), [((5, 9), Outlived, "begins at 5"), ((0, 2), StateCorrupted, "ends at 2")]
)
def test_a_store_and_its_topic_that_do_not_meet(bounds: tuple[int, int], fault: type[Exception], said: str) -> None:
    """Records it has not seen are gone from the topic: useless. The topic lost some it has seen: a person decides."""
    store, batch = MemoryStore(), Batch()
    mark_applied(batch, catalog.LIVE, 3)
    store.write(batch)
    restore = Restore(cast("Any", Brokers(*bounds)), "", 0, lambda: False)
    with pytest.raises(fault, match=said) as caught:
        restore.run(store)
    assert isinstance(caught.value, Outlived) is (fault is Outlived)


class Still(Outside):
    """No broker, no threads, no time that passes; the disk is real."""

    def monotonic(self) -> float:
        return 1_000.0

    def thread(self, *_: object) -> threading.Thread:
        return threading.Thread()

    def changelog_consumer(self) -> Any:
        return Brokers()

    changelog_follower = changelog_consumer


class Always:
    """A clock that stands unless it is moved, brokers that answer unless told otherwise, and tables that are empty."""

    calendars = NO_CALENDARS

    def __init__(self) -> None:
        self.at = NOW
        self.silent_ms = 0.0

    def now(self) -> int:
        return self.at

    def probe_age_ms(self) -> float:
        return self.silent_ms

    def wait(self, _stopped: object) -> object:
        return NO_CALENDARS


def standbys(folder: Path, **settings: Any) -> tuple[Standbys, Surroundings]:
    given = Settings(data_dir=folder, shards=4, node_id="n", **settings)
    parts = (given, given.catalogue(), Always(), Telemetry(), "c", Always(), Still(given))
    around = Surroundings(*cast("Any", parts))
    made = Standbys(around, 0)
    made._try_at = dict.fromkeys(made._numbers, 0.0)
    return made, around


def test_a_copy_whose_store_refuses_ends_alone(tmp_path: Path) -> None:
    """With an alarm and the reason; the copies beside it go on."""
    ours, around = standbys(tmp_path)
    around.store_path(1).parent.mkdir(parents=True)
    around.store_path(1).write_text("in the way")
    for _ in range(4):
        ours._begin_one()
    state = ours.state()
    assert state.keys() == {"0", "1", "2", "3"}
    assert "could not be opened" in state["1"]["trouble"]
    assert state["0"] == {"lag_records": 0, "behind_ms": 0}
    assert around.telemetry.registry.get_sample_value("scheduler_standby_failures_total") == 1
    for number in range(4):
        ours._let_go(number)


def test_a_shard_with_an_owner_on_this_node_is_left_alone(tmp_path: Path) -> None:
    """Neither begun nor kept; each process has its own share of the others."""
    ours, around = standbys(tmp_path, processes=2)
    with Mark(around.store_path(0)):
        ours._begin_one()
        assert ours.state().keys() == {"2"}
    with Mark(around.store_path(2)):
        ours._turn()
        assert ours.state() == {}
        open_store(around.store_path(2), Identity("c", "", 4, 2), NOW, lambda: False).close()


def test_a_copy_cut_off_for_long_is_begun_anew(tmp_path: Path) -> None:
    """What was deleted meanwhile may have left the topics, and would live on in it: hearing nothing is no news."""
    ours, around = standbys(tmp_path)
    clock = cast("Any", around.clock)
    ours._begin_one()
    kept = ours._followed[0]
    clock.at += STORE_LIFE_MS
    ours._read_at = 0.0
    ours._turn()
    assert (ours._followed[0], kept.whole_ms) == (kept, clock.at)
    clock.silent_ms = HEARD_MS
    for _ in range(2):  # the second time the brokers answer again
        clock.at += STORE_LIFE_MS // 2 + 1
        ours._read_at = 0.0
        ours._turn()
        clock.silent_ms = 0.0
    assert 0 not in ours._followed
    ours._begin_one()
    assert ours._followed[0] is not kept
    ours._let_go(0)


def test_switched_off(tmp_path: Path) -> None:
    """No copies, no consumer."""
    ours, _ = standbys(tmp_path, standby=False)
    ours._begin_one()
    assert ours.state() == {}
