"""Other schedulers under the same load on the same machine, each beside ours in one run."""
