"""Training: one loop, objectives as functions. A model is handed in; no model file is imported here."""
