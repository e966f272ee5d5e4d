"""Other people's trainers and gyms: one file each, thin, tested against the real package. Nothing is loaded unasked."""
