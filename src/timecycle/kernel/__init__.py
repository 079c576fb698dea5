"""Compiled forms of what propagation spends its time on besides encoding; torch does the same without them."""
