"""The judge: is a candidate right, on every input that callers may pass?

`stages` runs the five stages against a runner; `plan` says which cases they try, `layouts` how
inputs lie in memory, `golden` what the right answer is and how far off a right kernel may be,
`integrity` what is wrong whatever the values.  The judge owns inputs, seeds, golden values and the
verdict, and never executes a candidate itself.
"""
