torch.backends.mkldnn.set_flags(False)
