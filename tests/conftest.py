"""What holds for the whole suite."""

from hypothesis import HealthCheck, settings

# No test may fail because the machine is slow or busy.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
