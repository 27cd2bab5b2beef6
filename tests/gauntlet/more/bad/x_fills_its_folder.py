import os

for number in range(100_000):
    with open(f"block{number}", "wb") as handle:
        handle.write(b"\0" * 4096)
