"""What happened, in a file: the event log, its replay, and what another policy would have done."""
