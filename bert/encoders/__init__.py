"""The encoders that training can use, and the table that names them."""
