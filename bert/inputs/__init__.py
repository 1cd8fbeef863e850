"""Records and texts as batches for a model: tf.data."""
