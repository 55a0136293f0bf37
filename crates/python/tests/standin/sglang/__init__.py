"""A stand-in for the part of SGLang that the load format uses. Functions and methods have the parameters of SGLang's."""
