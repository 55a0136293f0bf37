"""A stand-in for the part of torchao that ``anamnesis._torchao`` uses."""
