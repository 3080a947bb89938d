"""Products with quantized weights, and lookups in quantized tables."""
