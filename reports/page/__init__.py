"""What a report says, as plain data: one file a section, from rows to texts and tables."""
