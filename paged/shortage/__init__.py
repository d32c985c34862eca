"""Why a pool has not so many blocks, and what would help."""
