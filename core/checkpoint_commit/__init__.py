"""What one commit does to a table: catalogs, Iceberg, Lance, and what commits of every format share."""
