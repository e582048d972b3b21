"""A Tinker server of one's own: SkyRL in an environment of its own, and a model small enough for any machine."""
