"""Everything about the model that samples tokens: engines, renderers, small models, endpoints of servers."""
