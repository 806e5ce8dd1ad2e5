"""HTTP to a server that speaks OpenAI's protocol: its requests, its streams, and what each known server understands.

Nothing here takes a time. The HTTP library is imported when a client is made.
"""

NAME = "openai"
"""Of the backend, on the command line and in rows."""
