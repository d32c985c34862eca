"""Block ids as integers: counts, rows, rooms, and the choice of the next block. Knows no driver and no device."""
