"""Supervised fine-tuning on the gold answers: what reinforcement learning has to beat."""
