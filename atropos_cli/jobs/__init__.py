"""Jobs: prepared for a launcher, stored and watched; their components started and stopped in order, anywhere."""
