"""What the package promises, checked on the user's own machine, each check beside a mutant that must fail."""
