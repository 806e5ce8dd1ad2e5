"""Pure arithmetic about models and memory: no I/O, no engine."""
