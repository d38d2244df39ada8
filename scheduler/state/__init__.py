"""The state of a shard: the local store, a disposable copy of the changelogs."""
