"""The micro model: sums in words, a tokenizer and weights for them, and all that trains it.

Data flows  sums -> pairs (the tokenizer) -> lesson (rows of tokens) -> gradient -> adam, which
``examples/train_micro_model.py`` puts together; it writes model.bin and tokenizer.bin here. ``tour`` shows what a
server does with a pool, on this model.
"""
