"""aggverify: numerical verification of loss aggregation under real torch.distributed."""
