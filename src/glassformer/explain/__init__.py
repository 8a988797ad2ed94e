"""What a model did, in numbers: attention, lens, saliency, neurons, edits. A reading in, arrays out."""
