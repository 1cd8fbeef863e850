"""Files, records, tables, the Hub, processes, progress: all below models.

Only remote paths and `imports` load TensorFlow.
"""
