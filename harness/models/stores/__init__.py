"""Where other programs keep the models that they downloaded: one file a program; read in place, never copied."""
