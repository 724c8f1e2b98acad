"""Kills, full disks, power loss, rotten bytes, hostile packs and crowds: what the store must survive."""
