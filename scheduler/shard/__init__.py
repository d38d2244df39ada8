"""The shard logic: one partition's decisions as a deterministic machine over a store; no Kafka, no clock.

    shard.py      the machine: plan a step, apply it once committed, housekeeping
    step.py       everything that commits together
    commands.py   input records to decisions        settle.py   decisions about nominals to records
    alike.py      creates of one definition, filled in from a form
    texts.py      and known by their bytes
    forwarding.py commands of another partition, copied there, and known when they come twice
    horizon.py    the next seconds, encoded ahead   outage.py   backlogs and catch-up after an outage
    held.py       that, in key order and by queue   lines.py    queues in memory, and cut where it ends
    firing.py     what a step takes and leaves
    backfills.py  ranges of the past, run again     passed.py   what calendars and gaps take away, recorded
    replan.py     newer calendars and zone tables   zones.py    which tables the schedules are planned by
    waiting.py    owed or put off to an instant     tidy.py     completed, broken, forgotten schedules
    rebuild.py    changelog records to the store    repair.py   a cursor of the future set back on request
    repartition.py  old shards' state for another number of new ones
    overdue.py    how much it is behind, counted    derived.py  the indexes of what is owed
    ground.py     what they all stand on            keys.py     the store's keys
    refusals.py   why a restored shard stays closed opening.py  commands of before go first

`runtime` drives it with Kafka, the simulator and the tests without.
"""
