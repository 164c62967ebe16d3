"""The image, built and run as Kubernetes would run it. Needs root, and what tests/debian.sh installs."""
