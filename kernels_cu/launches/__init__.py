"""The launch functions, one file a family of kernels; ``kernels_cu.launch`` names them all."""
