"""The Kafka shell: everything that talks to a broker, reads a clock or runs a thread.

    supervisor.py   a node: several processes, restarted when they die
    process.py      one process: signals, its parent, its health
    member.py       what runs in it, put together: one consumer, one clock, its shards
    assignment.py   partitions come and go: shard tasks opened and closed, never blocking the poll loop
    strays.py       commands in partitions that belong to no shard, copied to their shards
    task.py         one shard: a thread, a store, a transactional producer, the loop
    surroundings.py what the shards of a process share
    aside.py        a node whose disk refuses leaves its shards to others
    pace.py         when the shards do what nobody waits for
    transaction.py  the only file that commits          retired.py     clients that failed, until they are at rest
    restore.py      changelogs to the store             reading.py     partitions read to their ends
    standby.py      warm copies of the shards that other nodes own
    clock.py        the due clock: broker time, carried by a monotonic clock; fed and watched by probe.py
    tables.py       calendars and tenants, read whole and followed for all shards of the process
    ran.py          what ran, read from the dispatch topics for backfills
    kafka.py        clients and their settings          stores.py      the stores on disk
    outside.py      time, threads, clients and stores as the shell takes them: a simulation brings its own
    health.py       live, ready, metrics                telemetry.py   every metric, declared once; log events
    gauges.py       what a shard is like, as metrics
    quiet.py        the client's repeated words left out
    elders.py       newer zone tables or records wait until no process with older ones is left
    repair.py       setting back a shard that a wrong clock drove into the future
    repartition.py  moving a cluster to another number of shards
    hold.py         a shard held by such a tool         courier.py     what a move copies outside of transactions

What happens when something fails (`ops/failures.md` has the whole table, and which test shows what):

    it dies ...                           written            not written   the new owner
    before produce                        nothing            the step      decides the step again
    between produce and commit            aborted records    the step      init_transactions aborts them; decides again
    after commit, before the store write  the step           the store     restores the step from the changelogs
    after the store write                 the step, store    advances      advances fired entries while opening
    with an ambiguous commit              perhaps the step   the store     new producer, re-read, whatever it was
    while following another's shard       part of the copy   the rest      reads on where the copy's own position is
    while handing over (planned stop)     the step or not    the store     fences it, as after a kill: it had copies
"""
