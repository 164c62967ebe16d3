"""The domain: counts, figures, policy and verdict of speculative decoding. Pure; every module is public."""
