"""The scheduler: standing orders in on a topic, occurrences out on durable topics, on time, once.

A command's way from its topic to the dispatch, in six hops (a test checks that each stands where it says):

    topics/catalog.py                  Catalogue            the command topic: keyed by schedule id, P partitions
    topics/codec.py                    split_command        bytes become fields, or an `Undecodable` that is set aside
    scheduler/runtime/task.py          ShardTask._loop      one thread a shard: look at clock and inbox, plan, commit
    scheduler/shard/shard.py           Shard.plan           one step: what is due, then commands, then what can wait
    scheduler/core/decide.py           decide               the decision, pure: what is answered, changed, settled
    scheduler/runtime/transaction.py   Transaction.commit   all of the step in one Kafka transaction; then the store

From the dispatch topic on it is the workers': `consumers/worker.py` shows a safe one.
"""
