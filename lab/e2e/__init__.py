"""The whole stack on a real vLLM: traffic whose acceptance is known, and the pages that it must bring."""
