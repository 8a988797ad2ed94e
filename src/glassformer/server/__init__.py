"""`glass serve`: the API that OpenAI's clients know, with a model's insides in the answer where asked."""
