"""What one commit does to an Iceberg table, a module for each operation."""
