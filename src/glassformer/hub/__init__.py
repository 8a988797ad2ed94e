"""Everything that knows other people's names, addresses and file formats; both directions."""
