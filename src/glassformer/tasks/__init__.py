"""What a person asks for, in words."""
