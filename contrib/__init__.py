"""Models and vocabularies beside BERT's, which no other folder imports."""
