"""The domain: counts, figures, policy and verdict of speculative decoding. Pure but
for reading ``policy.json``; every module is public.
"""
