"""The trajectory server: environments push scored groups, trainers pull batches."""
