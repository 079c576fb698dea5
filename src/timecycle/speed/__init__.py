"""How fast encoding, matching and training are on a device, as a table that can be sent."""
