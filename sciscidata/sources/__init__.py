"""Where works and citations come from: each module turns one kind of source into the same two frames."""
