"""One number explained: the papers behind the CD index of a single work, without loading all."""
