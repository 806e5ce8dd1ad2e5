"""Measures a server from its client's side: every timestamp is taken here, on the streams of backends.openai."""
