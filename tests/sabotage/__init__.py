"""Each promise is broken on purpose here, to show that its test would notice."""
