"""Doctor: what a vLLM server's log says of its memory, why it ran out, and what the remedy does when it is replayed.

``log_file`` and ``log_line`` -> formats (``engine_lines``, ``memory_lines``, ``serving_lines``, ``failure_lines``) ->
``log_reader`` -> a ``ServerRun`` -> ``account``, ``concurrency``, ``block_fill`` -> causes -> ``remedy`` ->
``rehearsal`` -> ``report`` -> ``text``.
"""
