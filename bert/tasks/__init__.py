"""The tasks: examples, features, scores and the files of results."""
