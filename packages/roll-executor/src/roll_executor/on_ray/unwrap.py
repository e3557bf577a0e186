"""Ray actor classes, taken apart."""

from ray.actor import ActorClass


def plain_class(candidate: object) -> type | None:
    """Return the class that ``ray.remote`` wrapped, or None when the candidate is no Ray actor class."""
    if not isinstance(candidate, ActorClass):
        return None
    # Ray has no public way back from an actor class; the attribute is there since 1.0.
    wrapped: type = getattr(candidate, "__ray_metadata__").modified_class  # noqa: B009  # mypy does not know it
    inner: type = getattr(wrapped, "__ray_actor_class__", wrapped)
    return inner
