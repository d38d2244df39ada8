"""The Kafka shell in a world made from one seed: its own code, fake brokers, virtual time.

    fibers.py        threads that take turns; processes that die and freeze; the clock and the seed
    threads.py       locks, conditions, events and threads for them
    log.py           one partition: offsets, open transactions, what committed readers see
    transactions.py  the transaction coordinator: epochs, fencing, time-outs, markers
    group.py         the group coordinator: members, generations, cooperative hand-over
    brokers.py       all of that, and how well it can be reached
    network.py       requests that take time, and answers that get lost
    messages.py      records and errors as the client hands them out
    producers.py     the client's producers        consumers.py   its consumers
    disks.py         stores: what a kill leaves there, and what a loss of power
    machines.py      nodes and processes: the shell put together on all this
    tenant.py        who sends commands all the time
    chaos.py         what goes wrong
    witness.py       promises looked after with every committed transaction
    verdict.py       what should have happened, by an arithmetic of its own
    simulation.py    one story from a seed, with a quiet end at which everything must be as promised

What the fake brokers promise is held against real ones in `tests/conformance/test_broker_port.py`.
"""
