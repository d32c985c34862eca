"""Block tables: of one sequence, of all as one array, of a batch, and of a batch on the device."""
