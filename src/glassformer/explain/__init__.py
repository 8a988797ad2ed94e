"""What a model did, in numbers: attention, lens, saliency, neurons, surgery. A model and ids in, arrays out; no text here."""
