"""The part of vLLM that ``anamnesis.vllm`` uses, with the signatures of vLLM: ``test_vllm.py`` compares them with its source."""
