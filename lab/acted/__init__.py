"""Stories in which the product plays with other people's programs for a while: slow, or only where `make tools` was."""
