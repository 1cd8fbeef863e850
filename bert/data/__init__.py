"""What lies below models: files, tables, records, the Hub, processes."""
