"""The model that learns: its weights, its batches, its optimizer, and the ranks that share the work."""
