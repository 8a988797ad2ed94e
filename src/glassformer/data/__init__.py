"""Files -> examples -> batches."""
