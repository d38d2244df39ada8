"""The pure core: what a schedule means, and what is decided about it.

No I/O, no clock, no randomness, no logging: `now` is an argument, and the same state, the same input and the same
`now` give the same result, live, on replay and in the simulator. Instants are integer milliseconds since the epoch.
"""
