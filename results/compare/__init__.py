"""Two sets of rows beside each other: which cases are the same work, and is one of them faster."""
