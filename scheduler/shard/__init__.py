"""The shard logic: one partition's decisions as a deterministic machine over a store; no Kafka, no clock.

    shard.py      the machine: plan a step, apply it once committed, housekeeping
    step.py       everything that commits together
    commands.py   input records to decisions        settle.py   decisions about nominals to records
    horizon.py    the next seconds, encoded ahead   outage.py   backlogs and catch-up after an outage
    rebuild.py    changelog records to the store    keys.py     the store's keys

`runtime` drives it with Kafka, the simulator and the tests without.
"""
