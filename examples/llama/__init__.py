"""A language model of the Llama 2 architecture whose attention Pagewalk does.

Data flows  checkpoint and tokenizer -> model -> cache (Pagewalk's pool, or plain arrays to compare with) -> sampler ->
batch and beams. A stage holds a model and the device that it runs on; ``examples/tiny_llm.py`` is the program.
"""
