"""The due clock against its contract: what moves it, what stops it, what only raises an alarm."""

from __future__ import annotations

import logging

import pytest

from scheduler.core.time import FIRST_BELIEVED, LAST_BELIEVED
from scheduler.runtime.clock import (
    AGREE_MS,
    AGREEING,
    ALARMS,
    JUMP_MS,
    LOOSE_MS,
    SILENT_MS,
    SLEW,
    STARTING_MS,
    SystemClock,
)
from scheduler.runtime.probe import ClockWatch
from scheduler.runtime.telemetry import Telemetry
from tests.support.clocks import EPOCH, BrokerTime

HOUR_MS = 3_600_000


def alarms(broker: BrokerTime) -> set[str]:
    return set(broker.clock.alarms())


def test_silence_before_the_first_probe_is_told() -> None:
    """Until the brokers have said what time it is there is none; that is said once it is no longer just the start."""
    broker = BrokerTime()
    assert broker.clock.now() is None
    assert alarms(broker) == set()
    broker.machine.at += STARTING_MS + 1
    assert alarms(broker) == {"silent"}
    assert broker.probe() is not None
    assert alarms(broker) == set()


def test_a_machine_whose_clock_runs_fast_is_never_early() -> None:
    """50 millionths too fast, one tight answer and nine loose ones in ten: the tight one is trusted less as it ages."""
    broker = BrokerTime(ahead=0.4)
    for second in range(600):
        broker.machine.at += 1_000
        broker.ahead -= 0.05
        now = broker.probe(there=0, back=0 if second % 10 == 0 else 40)
        assert now is not None
        assert now <= broker.true_now()


@pytest.mark.parametrize("change", [JUMP_MS, -JUMP_MS, 100, -100])
def test_a_small_change_is_slewed(change: int) -> None:
    """Up to two seconds, forwards or back, are made good at 5 ms a second: no doubt, no jump, never a step."""
    broker = BrokerTime()
    broker.probe()
    broker.ahead = change
    last = broker.clock.now()
    assert last is not None
    seconds = round(abs(change) / (1000 * SLEW)) + 15
    for _ in range(seconds):
        at = broker.machine.at
        now = broker.probes(1)
        assert now is not None
        passed = broker.machine.at - at
        assert passed * (1 - SLEW) - 1 <= now - last <= passed * (1 + SLEW) + 1
        last = now
    assert abs(broker.true_now() - last) <= 3
    assert broker.clock.jumps == 0


def test_a_small_change_backwards_counts_from_the_first_probe_that_shows_it() -> None:
    """What a stamp contradicts is given up at once, not when the window of ten probes has passed."""
    broker = BrokerTime()
    broker.probes(10)
    broker.ahead = -1_000
    broker.probe()
    before = broker.clock.now()
    broker.machine.at += 1_000
    now = broker.clock.now()
    assert before is not None
    assert now is not None
    assert now - before == pytest.approx(1_000 * (1 - SLEW), abs=1.5)


@pytest.mark.parametrize("jump", [JUMP_MS + 10, HOUR_MS, -JUMP_MS - 10, -HOUR_MS])
def test_a_jump_needs_five_probes_that_agree_and_nothing_is_told_meanwhile(jump: int) -> None:
    """Four are not enough; the fifth makes the brokers' new time ours."""
    broker = BrokerTime()
    broker.probe()
    broker.ahead = jump
    for _ in range(AGREEING - 1):
        assert broker.probe() is None
        assert alarms(broker) - {"wall"} == {"doubt"}
    assert ("forwards" if jump > 0 else "backwards") in broker.clock.alarms()["doubt"]
    now = broker.probe()
    assert now is not None
    assert 0 <= broker.true_now() - now <= 3
    assert broker.clock.jumps == 1
    assert "doubt" not in alarms(broker)


def test_probes_that_differ_by_more_than_a_tenth_of_a_second_do_not_agree() -> None:
    """Five in a row count, so a clock that is still being moved is waited for."""
    broker = BrokerTime()
    broker.probe()
    for number in range(20):
        broker.ahead = HOUR_MS + number * (AGREE_MS / 2)
        assert broker.probe() is None
    assert broker.clock.jumps == 0
    broker.probes(AGREEING)
    assert broker.clock.jumps == 1


@pytest.mark.parametrize("absurd", [0, FIRST_BELIEVED - 1, LAST_BELIEVED + 1, 1 << 62])
def test_absurd_instants_are_never_believed(absurd: int) -> None:
    """However often the brokers say a year outside 2020 to 2100, there is no time until they say another."""
    broker = BrokerTime()
    broker.probe()
    for _ in range(3 * AGREEING):
        at = broker.machine.at
        broker.machine.at += 2
        broker.clock.observe(at, broker.machine.at, absurd)
        assert broker.clock.now() is None
        assert "absurd" in alarms(broker)
    assert broker.probe() is not None, "the old time is back"
    assert broker.clock.jumps == 0
    assert alarms(broker) == set()


def test_a_boot_in_1970_ends_when_five_probes_agree() -> None:
    """Having been absurd, the brokers' time is believed like a jump: not by its first reasonable word."""
    broker = BrokerTime(ahead=-EPOCH)
    assert broker.probes(30) is None
    broker.ahead = 0
    assert broker.probes(AGREEING - 1) is None
    now = broker.probes(1)
    assert now is not None
    assert 0 <= broker.true_now() - now <= 3
    assert broker.clock.jumps == 0, "there was no time before it that jumped"


@pytest.mark.parametrize("years", [50, -5])
def test_a_first_probe_that_contradicts_the_wall_clock_waits_for_four_more(years: int) -> None:
    """A boot in 2077: either clock may be wrong, so one probe is not enough; five are, and the alarm stays."""
    broker = BrokerTime(ahead=years * 365 * 24 * HOUR_MS)
    assert broker.probes(AGREEING - 1) is None
    assert "wall" in alarms(broker)
    assert broker.probes(1) is not None
    assert alarms(broker) == {"wall"}


@pytest.mark.parametrize("wrong", [7_200_000, -7_200_000])
def test_a_step_of_the_wall_clock_moves_nothing_and_is_told(wrong: int) -> None:
    """P49: the due clock follows the brokers alone; beyond two seconds the difference is an alarm."""
    broker = BrokerTime()
    broker.probe()
    for step in (0, wrong):
        broker.machine.wrong = step
        now = broker.probes(5)
        assert now is not None
        assert 0 <= broker.true_now() - now <= 3
        assert alarms(broker) == ({"wall"} if step else set())
    assert ("ahead of" if wrong > 0 else "behind") in broker.clock.alarms()["wall"]
    broker.machine.wrong = 0
    assert alarms(broker) == set()


@pytest.mark.parametrize(("wrong", "alarm"), [(1_900, False), (2_100, True), (-1_900, False), (-2_100, True)])
def test_the_wall_clock_alarms_beyond_two_seconds(wrong: int, *, alarm: bool) -> None:
    """Two seconds apart is the limit, on either side."""
    broker = BrokerTime()
    broker.probe()
    broker.machine.wrong = wrong
    assert ("wall" in alarms(broker)) is alarm


def test_without_probes_the_time_goes_on_by_the_monotonic_clock() -> None:
    """A broker away for minutes: the time is carried on, after a minute with an alarm, until a probe comes again."""
    broker = BrokerTime()
    broker.probe()
    for _ in range(10):
        broker.machine.at += SILENT_MS
        now = broker.clock.now()
        assert now is not None
        assert 0 <= broker.true_now() - now <= 3
    assert alarms(broker) == {"silent"}
    assert "600 s" in broker.clock.alarms()["silent"]
    broker.probe()
    assert alarms(broker) == set()


def test_a_machine_that_slept_is_right_at_once() -> None:
    """The monotonic clock went on: the probe that was under way says nothing, the next one agrees."""
    broker = BrokerTime()
    broker.probe()
    sent = broker.machine.at
    broker.machine.at += 20 * 60_000
    broker.clock.observe(sent, broker.machine.at, int(EPOCH + sent + 1))
    now = broker.clock.now()
    assert now is not None
    assert 0 <= broker.true_now() - now <= 3
    assert broker.probe() is not None
    assert broker.clock.jumps == 0


def test_a_virtual_machine_that_was_stopped_jumps() -> None:
    """Its monotonic clock stood still with it, so the brokers' time has jumped: believed after five probes."""
    broker = BrokerTime()
    broker.probe()
    broker.ahead, broker.machine.wrong = HOUR_MS, HOUR_MS
    assert broker.probes(AGREEING - 1) is None
    assert broker.probes(1) is not None
    assert broker.clock.jumps == 1


def test_a_probe_that_took_too_long_neither_begins_nor_ends_a_doubt() -> None:
    """It would fit the old time and the new one."""
    broker = BrokerTime()
    broker.probe()
    broker.ahead = 3_000
    broker.probe()
    assert broker.probe(back=LOOSE_MS + 1_500) is None
    broker.ahead = 0
    assert broker.probe(back=LOOSE_MS + 1_500) is None
    assert broker.probe() is not None


def test_alarms_are_metrics_and_events(caplog: pytest.LogCaptureFixture) -> None:
    """Each reason is a gauge of 0 or 1, and its beginning and end are one event each, not one a look."""
    broker = BrokerTime()
    telemetry = Telemetry()
    watch = ClockWatch(broker.clock, telemetry)

    def shown() -> dict[str, float | None]:
        name = "scheduler_clock_alarm"
        return {reason: telemetry.registry.get_sample_value(name, {"reason": reason}) for reason in ALARMS}

    with caplog.at_level(logging.INFO, "scheduler"):
        broker.probe()
        watch.look()
        assert set(shown().values()) == {0}
        broker.machine.wrong = 7_200_000
        broker.machine.at += 5_000
        for _ in range(3):
            watch.look()
        assert shown() == {"silent": 0, "absurd": 0, "doubt": 0, "wall": 1}
        offset = telemetry.registry.get_sample_value("scheduler_clock_offset_seconds")
        assert offset == pytest.approx(7_200, abs=0.01)
        age = telemetry.registry.get_sample_value("scheduler_clock_probe_age_seconds")
        assert age == pytest.approx(5)
        broker.machine.wrong = 0
        watch.look()
        assert set(shown().values()) == {0}
    fields = [(r.message, r.__dict__["fields"]["reason"]) for r in caplog.records]
    assert fields == [("clock_alarm", "wall"), ("clock_alarm_over", "wall")]


def test_the_machines_own_clock_is_not_its_wall_clock() -> None:
    """What the time is carried on by never goes back and cannot be set."""
    system = SystemClock()
    first = system.monotonic_ms()
    assert system.monotonic_ms() >= first
    assert abs(system.wall_ms() - system.monotonic_ms()) > HOUR_MS
