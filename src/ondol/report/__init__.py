"""What a person, a CI page or a program is told."""
