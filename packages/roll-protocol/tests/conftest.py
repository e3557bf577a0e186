"""Settings shared by the tests of this package."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "package",
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("package")
