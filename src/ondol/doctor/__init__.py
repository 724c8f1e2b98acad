"""What is wrong with this machine and these directories, before a job finds out."""
