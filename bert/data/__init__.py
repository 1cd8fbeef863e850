"""Files, tables and records: read and written without TensorFlow."""
