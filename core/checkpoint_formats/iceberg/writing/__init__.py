"""How a data file of an Iceberg table is written."""
