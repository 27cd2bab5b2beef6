"""The runner: the only place where code that an agent wrote is executed.

`client` is the judge's side.  It starts a `zygote`, a process that has imported torch and triton
and nothing else; the zygote forks one `child` per candidate, which confines itself (`sandbox`),
loads the kernel and executes it on inputs that the judge put into shared memory.  A child holds no
golden value, no seed and no secret.
"""
