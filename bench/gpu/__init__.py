"""What needs an NVIDIA GPU: a small suite of our own, and suites that other people wrote. `python -m bench.gpu`"""
