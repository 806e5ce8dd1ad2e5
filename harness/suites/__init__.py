"""Fixed lists of work (--suite), so that machines compare without agreeing on flags."""
