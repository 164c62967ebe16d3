"""Two recordings beside each other: what differs beyond chance, and whether they can be compared at all."""
