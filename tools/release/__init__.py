"""What makes a release, and what tells about it."""
