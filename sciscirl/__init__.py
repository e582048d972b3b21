"""Turns a released slice into reinforcement-learning environments; reads nothing of sciscidata but the release."""
