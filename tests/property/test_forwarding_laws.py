"""The laws of commands that were sent to the wrong partition: one shard copies them, another applies them.

The shard that copies dies before it commits, in the middle of its copies or behind them, or is frozen and goes on
copying beside its successors; the one that applies is killed and restored. Both are the real ones; what lies between
them is a list.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver
from topics.catalog import Catalogue
from topics.messages import FORWARDED_AFTER_HEADER, FORWARDED_HEADER
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.shard.step import Forward

SHARDS = 3
HOME, SOURCE = 0, 1
NAMES = [name for name in (f"acme/n{n}" for n in range(40)) if partition_for(name.encode(), SHARDS) == HOME][:4]
OTHER = next(name for name in (f"acme/n{n}" for n in range(40)) if partition_for(name.encode(), SHARDS) == 2)
SPEC = {"trigger": {"every_ms": 3_600_000}}

COMMANDS = st.lists(st.tuples(st.sampled_from(["create", "delete"]), st.sampled_from([*NAMES, OTHER])), max_size=9)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["commits", "dies", "freezes", "thaws"]), st.integers(0, 3)),
        st.tuples(st.just("restored"), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, len(NAMES) - 1)),
    ),
    max_size=25,
)
HOLES = st.lists(st.booleans(), min_size=60, max_size=60)


class Pair:
    """A shard that got commands of another, and the other; `fails` says of each copy in turn whether it fails alone."""

    def __init__(self, sent: Sequence[tuple[str, str]], fails: Sequence[bool] = ()) -> None:
        options = ShardSettings(max_commands=3)
        self.source = Driver(catalogue=Catalogue(shards=SHARDS), settings=options, number=SOURCE)
        self.home = Driver(catalogue=Catalogue(shards=SHARDS), settings=options, number=HOME)
        self.frozen: deque[Forward] = deque()
        self.fails = deque(fails)
        self.sent = [name for _, name in sent]
        for verb, name in sent:
            spec = {"spec": SPEC} if verb == "create" else {}
            value = json.dumps({"command": verb, "schedule_id": name, **spec}).encode()
            self.source.send(value, partition=SOURCE)

    def live(self, event: str, amount: int) -> None:
        if event == "delete":
            self.home.send({"command": "delete", "schedule_id": NAMES[amount]})
        elif event == "restored":
            self.home.restart(wipe=True)
        elif event == "thaws":
            for _ in range(min(amount, len(self.frozen))):
                self.copy(self.frozen.popleft())
        else:
            self.step(event, amount)

    def step(self, event: str, amount: int) -> None:
        """One step of the shard that copies: it commits, dies after `amount` copies, or freezes there."""
        step = self.source.plan()
        copies = [] if step is None else step.forwards
        if event == "commits":
            while [copy for copy in copies if not self.copy(copy)]:
                pass  # some failed, so it did not commit: opened anew it copies them all again
            for _ in range(amount and len(self.frozen)):
                self.copy(self.frozen.popleft())
            self.source.turn()
            return
        for copy in copies[:amount]:
            self.copy(copy)
        if event == "freezes" and not self.frozen:
            self.frozen.extend(copies[amount:])
        self.source.restart(run=False)

    def copy(self, copy: Forward) -> bool:
        """Append a copy to its partition, unless it fails."""
        if self.fails and self.fails.popleft():
            return False
        if copy.partition == HOME:
            headers = {name: value.decode() for name, value in copy.headers}
            after = headers[FORWARDED_AFTER_HEADER]
            self.home.send(copy.value, key=copy.key, forwarded_from=headers[FORWARDED_HEADER], forwarded_after=after)
        return True

    def end(self) -> None:
        """Everything is copied, a last time by who was frozen, and applied."""
        self.fails.clear()
        while self.source.shard is not None and self.source.shard.position("scheduler.commands") < len(self.sent):
            self.step("commits", 0)
        self.live("thaws", len(self.frozen))
        self.home.run_until(self.home.now)

    def answers(self) -> Counter[str]:
        """How often each command that was copied is answered."""
        found = [reply["command_id"] for reply in self.home.topics.values("scheduler.replies")]
        return Counter(name for name in found if name.startswith(f"{SOURCE}-"))

    @property
    def expected(self) -> set[str]:
        return {f"{SOURCE}-{offset}" for offset, name in enumerate(self.sent) if name in NAMES}


def replayed(pair: Pair) -> set[str]:
    """The schedules there are if each command is applied when it comes for the first time."""
    seen: set[str | None] = set()
    there: set[str] = set()
    for record in pair.home.commands:
        if record.forwarded_from is not None and record.forwarded_from in seen:
            continue
        seen.add(record.forwarded_from)
        fields: dict[str, Any] = json.loads(record.value or b"")
        if fields["command"] == "create":
            there.add(fields["schedule_id"])
        else:
            there.discard(fields["schedule_id"])
    return there


@settings(max_examples=150, deadline=None)
@given(sent=COMMANDS, events=EVENTS)
def test_a_command_that_is_copied_often_is_applied_once(
    sent: list[tuple[str, str]], events: list[tuple[str, int]]
) -> None:
    """Whoever copies it again, whatever was deleted meanwhile: nothing deleted comes back, none is answered twice.

    What is not applied again is set aside, so that every record is accounted for.
    """
    pair = Pair(sent)
    for event, amount in events:
        pair.live(event, amount)
    pair.end()
    assert pair.answers() == dict.fromkeys(pair.expected, 1)
    assert {name for name in NAMES if pair.home.schedule(name) is not None} == replayed(pair)
    codes = Counter(record["code"] for record in pair.home.topics.values("scheduler.rejected"))
    copies = sum(record.forwarded_from is not None for record in pair.home.commands)
    assert codes == Counter({"repeated": copies - len(pair.expected)})


@settings(max_examples=150, deadline=None)
@given(sent=COMMANDS, events=EVENTS, fails=HOLES)
def test_a_copy_that_fails_alone_is_not_taken_for_had(
    sent: list[tuple[str, str]], events: list[tuple[str, int]], fails: list[bool]
) -> None:
    """One that comes after others of its step that did not fail is applied all the same: nothing is lost."""
    pair = Pair(sent, fails)
    for event, amount in events:
        pair.live(event, amount)
    pair.end()
    assert set(pair.answers()) == pair.expected


def test_marks_that_an_older_release_left_out_are_made_anew() -> None:
    """A record without them is that of a shard that knows no copies: commands are applied, and known from then on."""
    pair = Pair([("create", NAMES[0]), ("create", NAMES[1]), ("delete", NAMES[0])])
    pair.live("dies", 2)
    pair.home.run_until(pair.home.now)
    record = pair.home.topics.records["scheduler.shards"][-1]
    assert record[1] is not None
    assert b'"forwarded":{"1":2}' in record[1]
    pair.home.topics.records["scheduler.shards"][-1] = (
        record[0],
        record[1].replace(b'"forwarded":{"1":2}', b'"unheard_of":1'),
        *record[2:],
    )
    pair.home.restart(wipe=True)
    pair.end()
    assert pair.answers() == {"1-0": 2, "1-1": 2, "1-2": 1}
    assert pair.home.shard is not None
    assert pair.home.shard.record.forwarded == {SOURCE: 3}
