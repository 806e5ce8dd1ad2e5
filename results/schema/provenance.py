"""Where a row comes from, by which it is decided what it must tell."""

MEASURED, IMPORTED, PUBLISHED = PROVENANCES = ("measured", "imported", "published")
ALWAYS = PROVENANCES
FOREIGN = (IMPORTED, PUBLISHED)
