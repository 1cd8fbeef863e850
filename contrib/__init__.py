"""Several tasks at once, models and vocabularies beside BERT's.

The rest of the repository imports nothing of it, but for programs in the root.
"""
