"""The rendered rules on the engines that people have: one story, told to each of them at once."""
