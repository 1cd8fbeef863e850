"""Several tasks at once, models and vocabularies beside BERT's."""
