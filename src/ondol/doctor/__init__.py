"""What will fail a job, before a job finds out; and what failed one, from its log."""
