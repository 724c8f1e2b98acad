"""Device facts: while pytest collects, questions about devices are answered without touching one.

Every suite for accelerators asks at import: `torch.cuda.is_available()` in a skipif, `get_device_capability()` in a
module. The first such question opens the device in the collecting process, and from then on that process cannot be
forked into workers. So, until the fork, the functions that ask are replaced: a helper process that really has the
device answers, and this process never opens it. In a forked worker everything is the real thing again.

    questions   which functions are answered (pure)
    values      arguments and answers as JSON (the helper and its client share it)
    helper      the process that has the device
    client      asks the helper, remembers answers, keeps them for the next run
    stand_ins   puts the answers in the place of the functions, and notices who touched the device all the same
"""
