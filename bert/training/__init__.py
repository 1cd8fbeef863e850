"""The training loop, prediction, and what they need of memory."""
