"""Logits to choices: token ids in, token ids out. Knows no text and no torch."""
