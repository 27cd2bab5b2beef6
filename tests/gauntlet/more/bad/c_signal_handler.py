import signal

signal.signal(signal.SIGALRM, lambda number, frame: None)
