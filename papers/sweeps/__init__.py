"""Many runs on one device, in threads of one process or shared over several: ``python -m papers.sweeps``."""
