"""Files of JSON objects, one a line."""
